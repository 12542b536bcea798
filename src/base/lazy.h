/* lazy.h - libraries that most runs of the program do not need, loaded by the ones that do.
 *
 * Linked in the usual way, TLS and SQLite cost every `cove run` a millisecond of relocation. Here
 * their functions are stubs that jump through a slot, and loading the library fills the slots. The
 * callers include the library's own header and call it by its own names; a function that a list has
 * forgotten does not link.
 *
 *   #define FUNCTIONS(X) X(sqlite3_open_v2) X(sqlite3_close_v2) ...
 *   LAZY_LIBRARY(lazy_sqlite, "libsqlite3.so.0", "libsqlite3-0", FUNCTIONS)
 *
 * and, before the first call: if (lazy_load(&lazy_sqlite, err)) ... */
#ifndef BASE_LAZY_H
#define BASE_LAZY_H

#include <stdbool.h>

#include "base/err.h"

struct lazy_row {
    const char *name;
    void **slot;
};

struct lazy {
    const char *file, *package; /* for the sentence that says it is missing: Debian's */
    const struct lazy_row *rows;
    size_t n;
    bool loaded;
};

/* For good: it is never unloaded. From any thread. ERR_UNSUPPORTED: not installed, or too old. */
int lazy_load(struct lazy *l, struct err *err);
void lazy_unloaded(void); /* where a stub leads before that */

#ifdef __x86_64__
#define LAZY_JUMP(name) "endbr64\n jmp *lazy_slot_" #name "(%rip)\n"
#elif defined __aarch64__
#define LAZY_JUMP(name)                                                                            \
    "adrp x16, lazy_slot_" #name "\n ldr x16, [x16, :lo12:lazy_slot_" #name "]\n br x16\n"
#else
#error "no jump through a slot for this architecture: add it here"
#endif

/* NOLINTBEGIN(bugprone-macro-parentheses): names, which take none */
#define LAZY_SLOT(name) __attribute__((used)) static void *lazy_slot_##name = (void *)lazy_unloaded;
#define LAZY_STUB(name)                                                                            \
    __asm__(".pushsection .text.lazy." #name ",\"ax\",%progbits\n"                                 \
            ".globl " #name "\n.hidden " #name "\n.type " #name ", %function\n.balign 16\n" #name  \
            ":\n" LAZY_JUMP(name) ".size " #name ", .-" #name "\n.popsection\n");
#define LAZY_ROW(name) { #name, &lazy_slot_##name },
#define LAZY_LIBRARY(variable, file, package, FUNCTIONS)                                           \
    FUNCTIONS(LAZY_SLOT)                                                                           \
    FUNCTIONS(LAZY_STUB)                                                                           \
    static const struct lazy_row variable##_rows[] = { FUNCTIONS(LAZY_ROW) };                      \
    struct lazy variable = { file, package, variable##_rows, ARRAY_LEN(variable##_rows), false };
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
