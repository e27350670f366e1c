"""The site, by Sphinx: ``make docs`` builds it into docs/_build/html. Nothing in it is loaded from a network.

Mathematics becomes MathML when the site is built, which browsers draw by themselves.
"""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.nodes import make_refnode
from sphinx.writers.html5 import HTML5Translator

project, author = "tembed", "the authors of tembed"
html_theme, html_title = "furo", "tembed"
html_math_renderer = "mathml"
html_copy_source = False
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "auto"  # runs the cells of the pages; the notebook keeps its stored outputs
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

nitpicky = True
nitpick_ignore_regex = [("py:class", ".*"), ("py:obj", r"typing\..*")]  # Types of signatures: internal, or of others.
INTERNAL = (
    "DeepSupervision GridRun IDLE INSIDES LAYOUTS NamedOutput PATCHES POSITIONS QUICK Trainer each_prediction "
    "image_sums parts.draw spaces_of tembed.kernels.fused_bn_relu tembed.lab.page tembed.models.conventions"
)
"""What docstrings mention although it is not in the reference."""
nitpick_ignore = [("py:obj", name) for name in (*INTERNAL.split(), "tembed train", "tembed models", "tembed data list")]
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True


def mathml(node: nodes.Node, display: str) -> str:
    made = convert(node.astext(), display=display)
    if "\\" in made:
        logging.getLogger(__name__).warning("a command is not known: %s", node.astext(), location=node)
    return made


def inline_math(translator: HTML5Translator, node: nodes.Node) -> None:
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block_math(translator: HTML5Translator, node: nodes.Node) -> None:
    translator.body.append(f'<div class="math">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def find_short_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element) -> nodes.Node | None:
    """Let a docstring name anything public by its last name: `Output` is ``tembed.Output``."""
    known = env.domains["py"].objects
    target = node["reftarget"]
    found = sorted((name for name in known if name.endswith(f".{target}")), key=lambda name: (name.count("."), name))
    if not found:
        return None
    entry = known[found[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, shown)


def setup(app: Sphinx) -> None:
    app.connect("missing-reference", find_short_name)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
