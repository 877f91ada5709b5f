"""For authors of layouts and methods: suites of laws and a slow, obvious oracle."""

from torchlgm.layout import edge_list as edge_list
from torchlgm.testing.connections import check_connection as check_connection
from torchlgm.testing.layouts import check_layout as check_layout
from torchlgm.testing.oracle import edges as edges
from torchlgm.testing.oracle import energy as energy
from torchlgm.testing.oracle import labellings as labellings
from torchlgm.testing.rules import check_rule as check_rule
