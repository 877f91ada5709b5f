"""Models in a browser: one small file for a model, and a page without dependencies that answers from it.

The page and its engine in JavaScript are in `page/`.
"""

from torchlgm.interop.web.export import SUFFIX as SUFFIX
from torchlgm.interop.web.export import Examples as Examples
from torchlgm.interop.web.export import describe_method as describe_method
from torchlgm.interop.web.export import export_web as export_web
from torchlgm.interop.web.importer import WebModel as WebModel
from torchlgm.interop.web.importer import import_web as import_web
from torchlgm.interop.web.site import LISTING as LISTING
from torchlgm.interop.web.site import PAGE as PAGE
from torchlgm.interop.web.site import Shown as Shown
from torchlgm.interop.web.site import copy_page as copy_page
from torchlgm.interop.web.site import listing as listing
from torchlgm.interop.web.site import models_of_page as models_of_page
