/* zygote_blob.h - the zygote's program, embedded: installing Cove is copying one file. */
#ifndef KEEP_ZYGOTE_BLOB_H
#define KEEP_ZYGOTE_BLOB_H

#include <stdint.h>

extern const char zygote_blob[];
extern const uint64_t zygote_blob_size;

#endif
