/* zygote_blob.h - the zygote's program, embedded: installing Cove is copying one file. */
#ifndef KEEP_ZYGOTE_BLOB_H
#define KEEP_ZYGOTE_BLOB_H

extern const char zygote_blob[], zygote_blob_end[];

#endif
