/* seccomp_gen.c - runs while Cove is built: turns seccomp_table.h into the filter's instructions,
 * which seccomp.c includes. A sandbox then starts without compiling anything.
 *
 * usage: seccomp-gen            the C header with the filter
 *        seccomp-gen --list     "number name verdict verdict-with-zero-arguments" by tabs, for
 * tests
 *
 * Not by libseccomp: its rules have no order. "Refuse TIOCSTI, allow the rest" in an allow-list is
 * accepted by 2.5.4 and comes out as "allow". Here the first rule that holds decides. Adjoining
 * numbers with one verdict share a leaf: with all its rules this is shorter than libseccomp's tree
 * of the same table without any (379 instructions against 449).
 *
 * Whatever the table says and the filter cannot is an error that ends the build. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "jail/seccomp_table.h"

/* gaps: numbers that no kernel gave away. */
struct gap {
    uint32_t first, last;
};
#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
static const struct gap gaps[] = { { 337, 423 } };
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
static const struct gap gaps[] = { { 244, 259 }, { 295, 423 } };
#else
#error "no system call numbers for this architecture: add it here and in seccomp_table.h"
#endif
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half of an argument comes first");

enum { NR_MAX = 1023 };

struct leaf { /* from this number up to the next leaf's: one verdict, or one call with rules */
    uint32_t first;
    int verdict;
    const struct seccomp_row *row; /* only where it has rules */
};

static const struct seccomp_row *by_nr[NR_MAX + 1];
static struct leaf leaves[NR_MAX + 2];
static size_t leaf_count;
static struct sock_filter code[BPF_MAXINSNS];
static size_t code_len;

static void die(const char *what, const struct seccomp_row *row)
{
    fprintf(stderr, "seccomp-gen: seccomp_table.h: %s%s%s\n", row ? row->name : "", row ? ": " : "",
            what);
    exit(1);
}

static void check_rules(const struct seccomp_row *row)
{
    for (size_t i = 0; i < row->rule_count; i++) {
        const struct seccomp_rule *rule = &row->rules[i];
        bool last = i + 1 == row->rule_count, ended = false;

        if (last != !rule->when[0].mask)
            die("exactly the last rule has to be without a test", row);
        for (size_t t = 0; t < SECCOMP_TESTS; t++) {
            const struct seccomp_test *test = &rule->when[t];

            ended |= !test->mask;
            if ((ended && test->mask) || (test->value & ~test->mask) || test->arg > 5)
                die("a test that can never hold", row);
        }
    }
}

static bool in_gap(uint32_t nr)
{
    for (size_t i = 0; i < ARRAY_LEN(gaps); i++)
        if (nr >= gaps[i].first && nr <= gaps[i].last)
            return true;
    return false;
}

/* Fills by_nr, and makes sure that nobody forgot a call or judged one twice. */
static void read_table(void)
{
    uint32_t last = 0;

    for (size_t i = 0; i < ARRAY_LEN(seccomp_table); i++) {
        const struct seccomp_row *row = &seccomp_table[i];

        if (row->nr > NR_MAX)
            die("its number is beyond NR_MAX", row);
        if (by_nr[row->nr])
            die("has two rows, or the number of another call", row);
        if (row->verdict < 0 || row->verdict > SECCOMP_IDLE)
            die("its verdict is no errno", row);
        check_rules(row);
        by_nr[row->nr] = row;
        last = MAX(last, row->nr);
    }
    for (uint32_t nr = 0; nr <= last; nr++)
        if (!by_nr[nr] && !in_gap(nr)) {
            fprintf(stderr, "seccomp-gen: seccomp_table.h: no row for number %u\n", nr);
            exit(1);
        }
}

static void make_leaves(void)
{
    for (uint32_t nr = 0; nr <= NR_MAX; nr++) {
        const struct seccomp_row *row = by_nr[nr];
        struct leaf leaf = { .first = nr, .verdict = row ? row->verdict : ENOSYS };
        const struct leaf *before = leaf_count ? &leaves[leaf_count - 1] : NULL;

        if (row && row->rules)
            leaf.row = row;
        if (!before || leaf.row || before->row || before->verdict != leaf.verdict)
            leaves[leaf_count++] = leaf;
    }
    if (leaves[leaf_count - 1].row || leaves[leaf_count - 1].verdict != ENOSYS)
        die("the numbers above it would not be ENOSYS", by_nr[NR_MAX]);
}

static size_t emit(struct sock_filter insn)
{
    if (code_len == ARRAY_LEN(code))
        die("more instructions than the kernel takes", NULL);
    code[code_len] = insn;
    return code_len++;
}

/* Error 0 is success: the call returns 0 without having been made. */
static void emit_verdict(int verdict)
{
    uint32_t error = verdict == SECCOMP_IDLE ? 0 : (uint32_t)verdict;

    emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                      verdict ? SECCOMP_RET_ERRNO | error : SECCOMP_RET_ALLOW));
}

/* Loads what the test looks at, unless the accumulator holds it already. */
static void emit_load(const struct seccomp_test *test, const struct seccomp_test *held)
{
    if (held && held->arg == test->arg && held->mask == test->mask)
        return;
    emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                      offsetof(struct seccomp_data, args) + 8 * test->arg));
    if (test->mask != UINT32_MAX)
        emit((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, test->mask));
}

static void emit_rules(const struct seccomp_row *row)
{
    const struct seccomp_test *held = NULL;

    for (size_t i = 0; i < row->rule_count; i++) {
        const struct seccomp_rule *rule = &row->rules[i];
        size_t jumps[SECCOMP_TESTS], tests = 0;

        for (; tests < SECCOMP_TESTS && rule->when[tests].mask; tests++) {
            emit_load(&rule->when[tests], held);
            held = &rule->when[tests];
            jumps[tests] =
                emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, held->value, 0, 0));
        }
        emit_verdict(rule->verdict);
        for (size_t t = 0; t < tests; t++) /* on to the next rule: never more than ten away */
            code[jumps[t]].jf = (uint8_t)(code_len - jumps[t] - 1);
        if (tests > 1) /* the next rule is reached from several places */
            held = NULL;
    }
}

/* A binary search; its branches are laid out left, then right. */
static void emit_tree(size_t from, size_t to)
{
    size_t middle = from + (to - from) / 2, jump, left;

    if (to - from == 1 && leaves[from].row) {
        emit_rules(leaves[from].row);
        return;
    }
    if (to - from == 1) {
        emit_verdict(leaves[from].verdict);
        return;
    }
    jump =
        emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, leaves[middle].first, 0, 0));
    emit_tree(from, middle);
    left = code_len - jump - 1;
    if (left <= UINT8_MAX) {
        code[jump].jt = (uint8_t)left;
    } else { /* a conditional jump has 8 bits; all jumps inside the left part are relative */
        emit((struct sock_filter){ 0 });
        memmove(&code[jump + 2], &code[jump + 1], left * sizeof(*code));
        code[jump + 1] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)left);
        code[jump].jf = 1;
    }
    emit_tree(middle, to);
}

/* A call by another entry (int 0x80 on x86-64) has other numbers. x32's are these with bit 30 set:
 * above the last leaf. Both look like a kernel built without them. */
static void compile_filter(void)
{
    emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                      offsetof(struct seccomp_data, arch)));
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
    emit_verdict(ENOSYS);
    emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    emit_tree(0, leaf_count);
}

static void print_filter(void)
{
    printf("/* Made by seccomp-gen from seccomp_table.h. */\n"
           "static const struct sock_filter seccomp_filter[] = {\n");
    for (size_t i = 0; i < code_len; i++)
        printf("    { 0x%02x, %u, %u, 0x%08x },\n", code[i].code, code[i].jt, code[i].jf,
               code[i].k);
    printf("};\n");
}

static const char *verdict_name(int verdict)
{
    return !verdict ? "ALLOW" : verdict == SECCOMP_IDLE ? "=0" : strerrorname_np(verdict);
}

static void print_list(void)
{
    static const uint64_t zero[6];

    for (uint32_t nr = 0; nr <= NR_MAX; nr++)
        if (by_nr[nr])
            printf("%u\t%s\t%s\t%s\n", nr, by_nr[nr]->name,
                   by_nr[nr]->rules ? "RULES" : verdict_name(by_nr[nr]->verdict),
                   verdict_name(seccomp_verdict(by_nr[nr], zero)));
    printf("*\tdefault\tENOSYS\tENOSYS\n");
}

int main(int argc, char **argv)
{
    bool list = argc == 2 && !strcmp(argv[1], "--list");

    if (argc > 1 && !list) {
        fprintf(stderr, "usage: seccomp-gen [--list]\n");
        return 2;
    }
    read_table();
    make_leaves();
    compile_filter();
    if (list)
        print_list();
    else
        print_filter();
    return fflush(stdout) ? 1 : 0;
}
