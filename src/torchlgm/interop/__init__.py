"""Integrations: export to other runtimes, import from other libraries, and models inside other frameworks.

`torchlgm.interop.lightning` and `torchlgm.interop.hub` need their extras and are imported by name.
"""

from torchlgm.interop.exporters import Exported as Exported
from torchlgm.interop.exporters import Scaling as Scaling
from torchlgm.interop.exporters import export as export
from torchlgm.interop.head import Head as Head
from torchlgm.interop.rbm import from_bernoulli_rbm as from_bernoulli_rbm
from torchlgm.interop.web import Examples as Examples
from torchlgm.interop.web import export_web as export_web
