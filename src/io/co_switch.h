/* co_switch.h - the architecture's part of co_epoll.c: a stack, a switch, and what the address
 * sanitizer must be told about both. Included by co_epoll.c only. */
#ifndef IO_CO_SWITCH_H
#define IO_CO_SWITCH_H

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define CO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CO_ASAN 1
#endif
#endif

struct co_context {
    void *sp; /* saved while not running */
#ifdef CO_ASAN
    void *fake;         /* the sanitizer's fake stack */
    const void *bottom; /* of the real one */
    size_t size;
#endif
};

#ifdef CO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* void co_switch(void **save, void *load): callee-saved registers and the stack, nothing else. */
void co_switch(void **save, void *load);

#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".globl co_switch\n"
        ".type co_switch,@function\n"
        "co_switch:\n"
        "  endbr64\n"
        "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "  mov %rsp,(%rdi)\n"
        "  mov %rsi,%rsp\n"
        "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
        "  ret\n"
        ".size co_switch,.-co_switch\n"
        ".popsection\n");
enum { CO_FRAME = 8, CO_RETURN = 6 }; /* words; the return address is word CO_RETURN */
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".globl co_switch\n"
        ".type co_switch,%function\n"
        "co_switch:\n"
        "  sub sp,sp,#160\n"
        "  stp x19,x20,[sp]; stp x21,x22,[sp,#16]; stp x23,x24,[sp,#32]\n"
        "  stp x25,x26,[sp,#48]; stp x27,x28,[sp,#64]; stp x29,x30,[sp,#80]\n"
        "  stp d8,d9,[sp,#96]; stp d10,d11,[sp,#112]\n"
        "  stp d12,d13,[sp,#128]; stp d14,d15,[sp,#144]\n"
        "  mov x9,sp; str x9,[x0]; mov sp,x1\n"
        "  ldp x19,x20,[sp]; ldp x21,x22,[sp,#16]; ldp x23,x24,[sp,#32]\n"
        "  ldp x25,x26,[sp,#48]; ldp x27,x28,[sp,#64]; ldp x29,x30,[sp,#80]\n"
        "  ldp d8,d9,[sp,#96]; ldp d10,d11,[sp,#112]\n"
        "  ldp d12,d13,[sp,#128]; ldp d14,d15,[sp,#144]\n"
        "  add sp,sp,#160; ret\n"
        ".size co_switch,.-co_switch\n"
        ".popsection\n");
enum { CO_FRAME = 20, CO_RETURN = 11 };
#else
#error "co_switch: no port for this architecture yet; it is one function of ten instructions"
#endif

/* entry runs on the stack from base up to top when ctx is first switched to; it never returns. */
static inline void co_context_init(struct co_context *ctx, void (*entry)(void), void *base,
                                   void *top)
{
    uintptr_t aligned = ((uintptr_t)top & ~(uintptr_t)15) - 16;
    void **sp = (void **)aligned - CO_FRAME;

    memset(sp, 0, CO_FRAME * sizeof(*sp));
    sp[CO_RETURN] = (void *)(uintptr_t)entry;
    ctx->sp = sp;
#ifdef CO_ASAN
    ctx->fake = NULL;
    ctx->bottom = base;
    ctx->size = (size_t)((char *)top - (char *)base);
#else
    (void)base;
#endif
}

static inline void co_context_switch(struct co_context *from, struct co_context *to)
{
#ifdef CO_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->size);
#endif
    co_switch(&from->sp, to->sp);
#ifdef CO_ASAN
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}

/* First thing on a new stack: learn the bounds of the one we came from. */
static inline void co_context_entered(struct co_context *self, struct co_context *from)
{
#ifdef CO_ASAN
    __sanitizer_finish_switch_fiber(self->fake, &from->bottom, &from->size);
#else
    (void)self, (void)from;
#endif
}

/* The last switch of a coroutine: its fake stack is freed. */
static inline void co_context_leave(struct co_context *self, struct co_context *to)
{
#ifdef CO_ASAN
    __sanitizer_start_switch_fiber(NULL, to->bottom, to->size);
#endif
    co_switch(&self->sp, to->sp);
}

#endif
