"""Results of code that ran inside, brought here as Python objects.

What arrives is chosen by the code inside, and unpickling runs what a pickle says: a pickle from a sandbox can
leave it. So by default only pickles of plain data are read, by a reader that knows no other types; what is not
plain data comes as JSON. `allow_pickle=True` reads everything, for those who trust the code."""

from __future__ import annotations

import ast
import base64
import binascii
import collections
import fractions
import io
import json
import pickle
import re
import uuid
from typing import Any, Callable, Dict, Optional, Tuple

from .errors import VMOperationError

# Types whose constructors do nothing but make a value of the size of what they are given.
SAFE = {
    "builtins": {"complex", "range", "slice"},
    "collections": {"OrderedDict"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "ipaddress": {"IPv4Address", "IPv6Address"},
    "uuid": {"SafeUUID"},
}


class _Maker:
    """What a pickle finds in place of a class. It can be called and no more: on a class, or a function, a
    pickle can set attributes, and every user of it here would meet those."""

    __slots__ = ("_make",)
    _make: Callable[..., Any]

    def __init__(self, make: Callable[..., Any]) -> None:
        object.__setattr__(self, "_make", make)

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"a change of {name}")


class _Fixed(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"a change of {name}")


class _UUID(uuid.UUID, metaclass=_Fixed):
    """The one that a pickle makes without a call, for which it has to be a class."""

    def __new__(cls, *given: Any) -> Any:
        return object.__new__(uuid.UUID)


def _of_items(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Only of what the pickle has in it: a set of range(10**12) would take all our memory."""

    def make(items: Any = (), *rest: Any) -> Any:
        if not isinstance(items, (list, tuple, bytes)):
            raise pickle.UnpicklingError(f"{kind.__name__} of a {type(items).__name__}")
        return kind(items, *rest)

    return make


def _bytearray(*given: Any) -> bytearray:
    """Of bytes, or, in old protocols, of characters below 256; not of a size."""
    if len(given) == 2 and isinstance(given[0], str):
        return bytearray(given[0], "latin-1")
    made: bytearray = _of_items(bytearray)(*given[:1])
    return made


def _fraction(*given: Any) -> fractions.Fraction:
    """Of numbers, or digits: Fraction("1e999999999") computes for ever."""
    if len(given) == 1 and isinstance(given[0], str):
        if not re.fullmatch(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?", given[0]):
            raise pickle.UnpicklingError("fractions.Fraction of a text that is no fraction")
    elif not all(isinstance(number, int) for number in given):
        raise pickle.UnpicklingError("fractions.Fraction of something else than numbers")
    return fractions.Fraction(*given)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How old protocols write bytes. Of all codecs only theirs: others are modules that are imported."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"_codecs.encode to {encoding!r}")
    return text.encode("latin-1")


def _counter(*given: Any) -> Any:
    """Of the counts it is pickled with; it would count range(10**12), too."""
    if not all(isinstance(counts, dict) for counts in given):
        raise pickle.UnpicklingError("collections.Counter of something else than counts")
    return collections.Counter(*given)


# Those that can do more than that, with arguments that they are not pickled with.
_CAREFUL: Dict[Tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): _of_items(set),
    ("builtins", "frozenset"): _of_items(frozenset),
    ("builtins", "bytearray"): _bytearray,
    ("collections", "deque"): _of_items(collections.deque),
    ("collections", "Counter"): _counter,
    ("fractions", "Fraction"): _fraction,
    ("_codecs", "encode"): _encode,
}
RESULT_MAX = 512 << 20

MARKS = {"RESULT_PICKLE:": "pickle", "FINAL_ANSWER_PICKLE:": "pickle", "RESULT_JSON:": "json"}

# Runs inside, after the code. The pickle is what the documents have; JSON is for what is not plain data.
EPILOGUE = """
def _cove_result(value):
    import base64, json, pickle

    def other(item):
        for way in ("tolist", "to_dict", "isoformat", "_asdict"):
            if hasattr(item, way) and not isinstance(item, type):
                return getattr(item, way)()
        if isinstance(item, (set, frozenset, tuple)):
            return list(item)
        if hasattr(item, "__dataclass_fields__") and not isinstance(item, type):
            return {name: getattr(item, name) for name in item.__dataclass_fields__}
        raise TypeError(f"a result of type {type(item).__name__} cannot be sent")

    problem, sent = None, False
    for mark, dump in (
        ("MARK", lambda: pickle.dumps(value)),
        ("RESULT_JSON:", lambda: json.dumps(value, default=other).encode()),
    ):
        try:
            print("\\n" + mark + base64.b64encode(dump()).decode(), flush=True)
            sent = True
        except Exception as error:
            problem = error
    if not sent:
        raise problem
"""

# For calls that are not a statement of their own at the end: the first that is reached ends the code.
FINAL = "CoveFinalAnswer"
_FUNCTION = f"""
class {FINAL}(BASE):
    pass
def final_answer(answer):
    _cove_result(answer)
    raise {FINAL}
"""


def definitions(base: str, mark: str = "RESULT_PICKLE:") -> str:
    """`final_answer()` as a function. `base` is an exception that ends code quietly where it runs."""
    return EPILOGUE.replace("MARK", mark) + _FUNCTION.replace("BASE", base)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "__builtin__":  # as protocol 2 has it
            module, name = "builtins", "range" if name == "xrange" else name
        if (module, name) == ("uuid", "UUID"):
            return _UUID
        if (module, name) in _CAREFUL:
            return _Maker(_CAREFUL[module, name])
        if name in SAFE.get(module, ()):
            return _Maker(super().find_class(module, name))
        raise pickle.UnpicklingError(f"{module}.{name}")


def load(found: Dict[str, str], allow_pickle: bool) -> Any:
    """The object from what was printed after the marks.

    >>> load({"pickle": base64.b64encode(pickle.dumps({"a": [1, 2.5, None]})).decode()}, False)
    {'a': [1, 2.5, None]}
    >>> load({"pickle": base64.b64encode(b"cos\\nsystem\\n(S'true'\\ntR.").decode()}, False)
    Traceback (most recent call last):
    ...
    sandbox.errors.VMOperationError: the result needs os.system, which a pickle from a sandbox may not \
bring here: return plain data, or use allow_pickle=True if you trust the code
    """
    refused: Optional[Exception] = None
    if "pickle" in found:
        raw = _decode(found["pickle"])
        try:
            if allow_pickle:
                return pickle.loads(raw)
            return _Reader(io.BytesIO(raw)).load()
        except Exception as problem:  # a pickle can fail in every way there is
            refused = problem
    if "json" in found:
        try:
            return json.loads(_decode(found["json"]))
        except ValueError as problem:
            raise VMOperationError(f"the result is not JSON: {problem}") from None
    if isinstance(refused, pickle.UnpicklingError) and not allow_pickle:
        raise VMOperationError(
            f"the result needs {refused}, which a pickle from a sandbox may not bring here: "
            "return plain data, or use allow_pickle=True if you trust the code"
        )
    raise VMOperationError(f"the result could not be read: {refused}")


def _decode(text: str) -> bytes:
    if len(text) > RESULT_MAX:
        raise VMOperationError(f"the result is larger than {RESULT_MAX >> 20} MiB")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise VMOperationError(f"the result is not base64: {problem}") from None


def split(output: str) -> Tuple[Dict[str, str], str]:
    """What follows the marks, and the output without those lines. A mark is one at the start of a line,
    whatever message it came in.

    >>> split("log\\nRESULT_PICKLE:gASVAi4=\\nmore\\n")
    ({'pickle': 'gASVAi4='}, 'log\\nmore\\n')
    >>> split("\\x0cRESULT_PICKLE:no\\n")
    ({}, '\\x0cRESULT_PICKLE:no\\n')
    """
    found: Dict[str, str] = {}
    kept = []
    for line in re.findall(
        r"[^\n]*\n|[^\n]+", output
    ):  # of other ends of lines a print knows nothing
        mark = next((m for m in MARKS if line.startswith(m)), None)
        if mark is None:
            kept.append(line)
            continue
        found[MARKS[mark]] = line[len(mark) :].strip()
        # The epilogue begins a line of its own, which is not the code's.
        if kept and kept[-1] == "\n":
            kept.pop()
    return found, "".join(kept)


def with_result(code: str, mark: str = "RESULT_PICKLE:") -> Optional[str]:
    """The code with its one `final_answer(...)`, a statement at its top level, turned into a result. None where
    it has none, or others: those are for `definitions()`.

    >>> print(with_result("x = 1\\nfinal_answer(x + 1)").splitlines()[1])
    _result = (x + 1)
    >>> with_result("if x: final_answer(1)")
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return None  # a magic, or a real error, which the kernel will tell
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_final(node)]
    node = next((n for n in tree.body if isinstance(n, ast.Expr) and n.value in calls), None)
    if node is None or len(calls) != 1:
        return None
    given = [*calls[0].args, *(keyword.value for keyword in calls[0].keywords)]
    if len(given) != 1 or isinstance(given[0], ast.Starred) or _is_spread(calls[0]):
        return None
    lines = code.encode().splitlines(keepends=True)
    text = ast.get_source_segment(code, given[0]) or ast.unparse(given[0])
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :] + b"".join(
        lines[node.end_lineno or 1 :]
    )
    assigned = before.decode() + f"_result = ({text})" + after.decode()
    return f"{assigned}\n{EPILOGUE.replace('MARK', mark)}\n_cove_result(_result)\n"


def _is_final(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "final_answer"


def _is_spread(call: ast.Call) -> bool:
    return any(keyword.arg is None for keyword in call.keywords)
