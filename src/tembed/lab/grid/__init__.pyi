from .grid_file import Grid as Grid
from .grid_file import builtin_names as builtin_names
from .grid_file import load_grid as load_grid
from .jobs import locate_runs as locate_runs
