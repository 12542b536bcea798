"""Fewer cases of tables for a second run under a sanitizer: what they have in common is in each of them."""

FEW, ONE_IN = 4, 5


def dimensions(items):
    """The tables that cases are made from, as lists of row numbers: one per item. Arguments that always
    move together are of one table."""
    numbers = {name: tuple(item.callspec.indices[name] for item in items) for name in items[0].callspec.indices}
    return sorted(set(numbers.values()))


def of_function(items):
    """All of a few; of a table one row in five; of several tables each row once."""
    if len(items) <= FEW:
        return items
    tables = [table for table in dimensions(items) if len(set(table)) > 1]
    if len(tables) == 1:
        return items[::ONE_IN]
    kept, seen = [], set()
    for number, item in enumerate(items):
        rows = {(which, table[number]) for which, table in enumerate(tables)}
        # A row that is new in every table first, so that tables of one length go hand in hand.
        if not rows & seen:
            seen |= rows
            kept.append(item)
    for number, item in enumerate(items):
        rows = {(which, table[number]) for which, table in enumerate(tables)}
        if rows - seen:
            seen |= rows
            kept.append(item)
    return sorted(kept, key=items.index)


def thinned(items):
    functions = {}
    for item in items:
        functions.setdefault((item.path, item.cls, item.originalname), []).append(item)
    kept = {id(item) for cases in functions.values()
            for item in (of_function(cases) if hasattr(cases[0], "callspec") else cases)}
    return [item for item in items if id(item) in kept]
