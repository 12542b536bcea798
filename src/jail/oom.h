/* oom.h - whom the kernel kills when the machine has no memory left: not those that sandboxes hang
 * on. It goes by what a process holds itself, and what a sandbox took by way of the kernel is held
 * by nobody. */
#ifndef JAIL_OOM_H
#define JAIL_OOM_H

/* The caller and the children it will have come last. Without root nothing changes. */
void oom_protect(void);
/* The caller, a child of one that is protected, is as any process again, and so are its children:
 * none of them can go back, not even where it has privileges of its own. */
void oom_expose(void);

#endif
