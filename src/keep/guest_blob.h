/* guest_blob.h - the guest program, embedded: installing Cove is copying one file. */
#ifndef KEEP_GUEST_BLOB_H
#define KEEP_GUEST_BLOB_H

extern const char guest_blob[], guest_blob_end[];

#endif
