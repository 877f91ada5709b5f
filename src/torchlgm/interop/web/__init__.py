"""Models in a browser: one small file for a model, and a page without dependencies that answers from it.

The page and its engine in JavaScript are in `page/`.
"""

from torchlgm.interop.web.export import Examples as Examples
from torchlgm.interop.web.export import describe_method as describe_method
from torchlgm.interop.web.export import export_web as export_web
