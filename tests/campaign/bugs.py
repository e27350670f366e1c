"""The small bugs that can be planted in a Python file or a script of the page.

A flipped comparison or operator, a number that is off by one, two arguments in the wrong order, height in the place of
width, the wrong branch, a call that is left out.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
OPERATORS |= {ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*")}
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
COMPARISONS |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")}
NAMES = {"height": "width", "width": "height", "rows": "columns", "columns": "rows", "mean": "std", "plus": "minus"}

SYMMETRIC = ("max", "min", "register", "register_model", "register_optimizer")
"""Calls whose arguments are not swapped: the order does not matter, or every test fails."""


@dataclass(frozen=True)
class Bug:
    """``file`` (below ``src/tembed``) with the bytes from ``start`` to ``stop`` replaced."""

    file: str
    start: int
    stop: int
    line: int
    old: str
    new: str
    place: str
    """the line of the source where the bug starts"""

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split())} in {self.place}"

    def plant(self, content: bytes) -> bytes:
        """The content of the file with this bug."""
        return content[: self.start] + self.new.encode() + content[self.stop :]


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class PythonBugs(ast.NodeVisitor):
    """Collects the bugs that can be planted in a file. Messages, docstrings and annotations are left out."""

    def __init__(self, file: str, text: str):
        self.file, self.text, self.lines = file, text, text.splitlines()
        lengths = [len(line.encode()) for line in text.splitlines(keepends=True)]
        self.starts = list(accumulate(lengths, initial=0))
        self.content = text.encode()
        self.found: list[Bug] = []
        self.visit(ast.parse(text))

    def at(self, node: ast.expr, end: bool = False) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        assert line is not None
        assert column is not None
        return self.starts[line - 1] + column

    def source(self, node: ast.expr) -> str:
        return self.content[self.at(node) : self.at(node, True)].decode()

    def add(self, node: ast.expr, new: str) -> None:
        old, place = self.source(node), self.lines[node.lineno - 1].strip()
        if new != old:
            self.found.append(Bug(self.file, self.at(node), self.at(node, True), node.lineno, old, new, place))

    def between(self, node: ast.expr, left: ast.expr, right: ast.expr, symbols: tuple[str, str]) -> None:
        """Replace the operator between two operands."""
        first, last = self.at(left, True), self.at(right)
        gap = self.content[first:last].decode().replace(symbols[0], symbols[1], 1)
        before, after = self.content[self.at(node) : first], self.content[last : self.at(node, True)]
        self.add(node, before.decode() + gap + after.decode())

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for child in [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]:
            self.visit(child)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node.value, "None")
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not any(map(is_text, (node.left, node.right))):
            self.between(node, node.left, node.right, OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if type(node.ops[0]) in COMPARISONS:
            self.between(node, node.left, node.comparators[0], COMPARISONS[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        symbols = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self.between(node, node.values[0], node.values[1], symbols)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Not):
            self.add(node, f"({self.source(node.operand)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        body, test, other = map(self.source, (node.body, node.test, node.orelse))
        self.add(node, f"{other} if {test} else {body}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1))
        elif isinstance(node.value, float) and node.value:
            self.add(node, f"{node.value * 1.5!r}")

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in NAMES and NAMES[node.id] in self.text:
            self.add(node, NAMES[node.id])

    def visit_Call(self, node: ast.Call) -> None:
        symmetric = isinstance(node.func, ast.Name) and node.func.id in SYMMETRIC
        if len(node.args) >= 2 and not symmetric and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
            first, second = node.args[:2]
            gap = self.content[self.at(first, True) : self.at(second)].decode()
            before = self.content[self.at(node) : self.at(first)].decode()
            after = self.content[self.at(second, True) : self.at(node, True)].decode()
            self.add(node, before + self.source(second) + gap + self.source(first) + after)
        self.generic_visit(node)


TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<text>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<name>[A-Za-z_$][\w$]*)"
    r"|(?P<symbol>=>|\.\.\.|[=!]==|>>>|[<>]=|[<>]{2}|&&|\|\||\?\?|\?\.|\+\+|--|\*\*|[-+*/%&|^]=|.)",
    re.DOTALL,
)
PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n\[])+/\w*")
"""A regular expression of JavaScript."""
SYMBOLS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===", "&&": "||", "||": "&&"}
SYMBOLS |= {"+": "-", "-": "+", "*": "/", "/": "*", "!": "", "true": "false", "false": "true"}
STATEMENT = re.compile(r"^ *((?:await )?[\w.]+\(.*\));$", re.MULTILINE)
"""A call on a line of its own."""
TWO_ARGUMENTS = re.compile(r"(?<!max\()(?<!min\()(?<=\()([\w.]+), ([\w.]+)(?=[,)])")
"""The first two arguments of a call or a definition."""


def python_bugs(file: str, text: str) -> list[Bug]:
    """The bugs that can be planted in a Python file."""
    return PythonBugs(file, text).found


def javascript_tokens(text: str) -> Iterator[tuple[str, int, str]]:
    """The tokens of a script: their kind, place and text."""
    place, before = 0, "("
    while place < len(text):
        starts_value = before in "(,=:[!&|?{};+-*%<>" or before in ("=>", "return", "&&", "||", "===", "!==")
        match = PATTERN.match(text, place) if starts_value else None
        kind = "text"
        if match is None or TOKEN.match(text, place).lastgroup == "space":  # type: ignore[union-attr]
            match = TOKEN.match(text, place)
            assert match is not None
            assert match.lastgroup is not None
            kind = match.lastgroup
        if kind != "space":
            before = match[0]
            yield kind, place, before
        place = match.end()


def javascript_bugs(file: str, text: str) -> list[Bug]:
    """The bugs that can be planted in a script. Strings, templates, regular expressions and comments are left out."""
    found, lines = [], text.splitlines()

    def add(start: int, stop: int, new: str) -> None:
        line = text.count("\n", 0, start)
        first, last = len(text[:start].encode()), len(text[:stop].encode())
        found.append(Bug(file, first, last, line + 1, text[start:stop], new, lines[line].strip()))

    tokens = list(javascript_tokens(text))
    kinds = ["", *(kind for kind, _, _ in tokens), ""]
    for number, (kind, start, token) in enumerate(tokens):
        joins_texts = token == "+" and "text" in (kinds[number], kinds[number + 2])
        if kind in ("symbol", "name") and token in SYMBOLS and not joins_texts:
            add(start, start + len(token), SYMBOLS[token])
        elif kind == "number" and token.isdigit():
            add(start, start + len(token), str(int(token) + 1))
        elif kind == "number" and re.fullmatch(r"[\d.]+", token):
            add(start, start + len(token), repr(1.5 * float(token)))
    code = {start for kind, start, _ in tokens if kind in ("name", "number")}
    for match in STATEMENT.finditer(text):
        if match.start(1) in code and match[1].count("(") == match[1].count(")"):
            add(*match.span(1), "0")
    for match in TWO_ARGUMENTS.finditer(text):
        if match.start(1) in code and match[1] != match[2]:
            add(*match.span(), f"{match[2]}, {match[1]}")
    return found
