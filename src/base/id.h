/* id.h - names that cannot be guessed. */
#ifndef BASE_ID_H
#define BASE_ID_H

#include <stddef.h>

void id_random(char *out, size_t n); /* n characters of [a-z0-9] and a NUL: n + 1 bytes */
void id_hex(char *out, size_t n);    /* the same of [0-9a-f] */
/* A random UUID (RFC 4122, version 4): 36 characters and a NUL. */
void id_uuid(char out[static 37]);
void id_bytes(void *out, size_t n);

#endif
