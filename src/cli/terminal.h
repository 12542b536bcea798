/* terminal.h - our own standard streams: a terminal in raw mode, or pipes and files. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

bool terminal_wanted(void); /* input and output both are one */
void terminal_raw(void);    /* until terminal_restore(), or the end of the process */
void terminal_restore(void);
void terminal_size(int64_t *cols, int64_t *rows);
/* Like read and write, but park the coroutine, whatever mode the descriptor is in: it is shared
 * with others, so we must not make it non-blocking. terminal_write() writes all of it, or is -1. */
ssize_t terminal_read(int fd, void *p, size_t n);
int terminal_write(int fd, const void *p, size_t n);

#endif
