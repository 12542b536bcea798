"""srctree - reads a tree of C files for check-layers and measure: files, functions, includes.

It leans on clang-format: a function's `{` stands alone in column 0 and its `}` too, or the whole
function is on one line. Nothing here parses C beyond comments, strings and braces.
"""
import re
from collections import namedtuple
from pathlib import Path

Function = namedtuple("Function", "name line lines branches params")
Source = namedtuple("Source", "path module text code functions includes")

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
ONE_LINE = re.compile(r"^[A-Za-z_][^;={}]*\)\s*\{.*\}\s*$")
BRANCH = re.compile(r"\b(?:if|for|while|case)\b|&&|\|\||\?")
CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")


def without_comments(text):
    """Comments become blanks, strings and characters become "", line numbers stay."""
    def blank(match):
        token = match.group()
        return '""' if token[0] in "\"'" else "\n" * token.count("\n") or " "
    return TOKEN.sub(blank, text)


def code_lines(lines):
    return sum(1 for line in lines if line.strip())


def signature_of(text):
    """Name and number of parameters of the function whose head is `text`."""
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)|\bAUTO\(\w+\)", "", text)
    match = CALLED.search(text)
    if not match:
        return text.strip(), 0
    depth, params, inside = 1, 1, text[match.end():]
    for at, char in enumerate(inside):
        depth += (char == "(") - (char == ")")
        params += char == "," and depth == 1
        if depth == 0:
            inside = inside[:at]
            break
    return match.group(1), 0 if inside.strip() in ("", "void") else params


def functions_of(code):
    """The functions of a file whose comments are blanked out."""
    lines, found, head = code.split("\n"), [], 0     # head: where the next function may begin
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.rstrip() == "{":
            end = at
            while end + 1 < len(lines) and not lines[end].startswith("}"):
                end += 1
        elif ONE_LINE.match(line):
            end = at
        else:
            if not line.strip() or line[0] in "#}" or line.rstrip().endswith((";", "\\")):
                head = at + 1
            at += 1
            continue
        name, params = signature_of(" ".join(lines[head:at + 1]))
        body = lines[head:end + 1]
        found.append(Function(name, head + 1, code_lines(body),
                              len(BRANCH.findall("\n".join(body))), params))
        at = head = end + 1
    return found


def read(path, root):
    text = path.read_text()
    code = without_comments(text)
    # Includes are read from the text itself: their names are strings, blanked out in `code`.
    return Source(path, str(path.relative_to(root).with_suffix("")), text, code,
                  functions_of(code), INCLUDE.findall(text))


def read_tree(root):
    root = Path(root)
    return [read(path, root) for path in sorted(root.rglob("*.[ch]"))]


def include_graph(sources):
    """Module -> the modules of this tree it includes. A module is a .c with its .h."""
    graph = {source.module: set() for source in sources}
    for source in sources:
        for name in source.includes:
            module = name.removesuffix(".h")
            if module in graph and module != source.module:
                graph[source.module].add(module)
    return graph


def rings(graph):
    """Groups of modules that include each other in a circle, largest first."""
    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for other in graph[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    reached = {module: reach(module) for module in graph}
    found = {frozenset(other for other in reached[module] if module in reached[other])
             for module in graph if module in reached[module]}
    return sorted((sorted(ring) for ring in found), key=len, reverse=True)
