"""Networks in files: BIF, XMLBIF, NET and UAI; `text` is what their readers share."""
