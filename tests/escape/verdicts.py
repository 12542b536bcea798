"""verdicts - compares what syscall-probe saw with what seccomp_table.h declares.

usage: verdicts.py DECLARED PROBED [BASELINE]

DECLARED is the output of `seccomp-gen --list`, PROBED that of `syscall-probe` under the filter.
BASELINE is the probe's output by the same user of the same kernel without the filter (a sandbox
built with -Dweaken=true and COVE_WEAKEN=seccomp): with it, a call that is allowed has to answer as
if there were no filter. Without it only ENOSYS tells that an allowed call was refused.
"""

import sys

REFUSALS = {"ENOSYS", "EPERM", "EAFNOSUPPORT", "SIGSYS"}    # what a filter gone wrong would say
NO_ENTRY = {"ENOSYS", "SIGSYS", "SIGSEGV"}                  # SIGSEGV: a kernel without int 0x80


def parse_probe(text):
    """{number: "=0" | "EPERM" | "SIGALRM" | "exited"}"""
    return {int(number): result
            for number, result in (line.split() for line in text.splitlines() if line.strip())}


def parse_declared(text):
    """({number: (name, verdict for zero arguments)}, verdict for all other numbers)"""
    rows, default = {}, None
    for line in text.splitlines():
        number, name, _, zero = line.split("\t")
        if number == "*":
            default = zero
        else:
            rows[int(number)] = (name, zero)
    return rows, default


def _allowed_but_refused(result, baseline):
    if baseline is None:
        return result in ("ENOSYS", "SIGSYS")
    return result != baseline and result in REFUSALS


def discrepancies(declared, probed, baseline=None):
    """Sentences, one for each number that did not answer as the table says. Takes texts."""
    rows, default = parse_declared(declared)
    seen = parse_probe(probed)
    plain = parse_probe(baseline) if baseline is not None else {}
    found = []
    for number in sorted(set(rows) | set(seen)):
        name, want = rows.get(number, ("unknown", default))
        result = seen.get(number)
        before = plain.get(number) if baseline is not None else None
        if result is None:
            found.append(f"{number} {name}: was not probed")
        elif want != "ALLOW" and result != want:
            found.append(f"{number} {name}: {result}, declared {want}")
        elif want == "ALLOW" and _allowed_but_refused(result, before):
            found.append(f"{number} {name}: {result}, declared ALLOW"
                         + (f" ({before} without the filter)" if before else ""))
    return found


def foreign_discrepancies(probed):
    """The same for the i386 and x32 entries, which have to look as if they did not exist."""
    return [f"{number}: {result}, expected one of {', '.join(sorted(NO_ENTRY))}"
            for number, result in parse_probe(probed).items() if result not in NO_ENTRY]


def main(arguments):
    if len(arguments) not in (2, 3):
        sys.exit(__doc__)
    texts = []
    for name in arguments:
        with open(name, encoding="ascii") as file:
            texts.append(file.read())
    found = discrepancies(*texts)
    print("\n".join(found) if found else "the filter is as declared")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
