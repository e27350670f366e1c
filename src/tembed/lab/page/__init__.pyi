from .builder import build_page as build_page
from .panels import register_panel as register_panel
