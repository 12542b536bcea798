/* multipart.h - multipart/form-data as a stream: a push parser that never holds a part, and the
 * few lines that writing one takes. Pure: bytes in, events out. */
#ifndef IO_MULTIPART_H
#define IO_MULTIPART_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum multipart_event {
    MULTIPART_MORE, /* all input was taken; feed more */
    MULTIPART_PART, /* a part begins: name, filename and type are set */
    MULTIPART_DATA, /* data holds some of its bytes, valid until the next call */
    MULTIPART_END,  /* the closing boundary was read; what follows is ignored */
};

enum { MULTIPART_HEAD = 8192, MULTIPART_BOUNDARY = 70, MULTIPART_PARAMETERS = 64 };

struct multipart {
    char mark[MULTIPART_BOUNDARY + 5]; /* "\r\n--boundary" */
    size_t mark_len;
    int state;
    char spill[MULTIPART_BOUNDARY + 5]; /* held bytes that turned out to be data */
    struct buf hold;   /* bytes that may be the start of a mark, or an unfinished part head */
    struct str in;     /* input not taken yet */
    struct arena text; /* of the current part */
    struct str name, filename, type, data; /* filename.p NULL: none given */
    size_t parts;
};

/* From a Content-Type value; fails when it is no multipart/form-data with a usable boundary. */
int multipart_init(struct multipart *m, struct str content_type, struct err *err);
void multipart_finish(struct multipart *m);
void multipart_feed(struct multipart *m, struct str in); /* only after MULTIPART_MORE or at first */
int multipart_next(struct multipart *m, struct err *err); /* an event, or -1 */

/* Writing: begin a part, then its bytes, then the next part or the end. */
void multipart_put_part(struct buf *b, const char *boundary, const char *name, const char *filename,
                        const char *type);
void multipart_put_end(struct buf *b, const char *boundary);

#endif
