/* log.h - structured lines on standard error: logfmt, or JSON by choice. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/buf.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log_kv {
    const char *key;  /* NULL ends the list */
    const char *text; /* NULL is printed as "" */
    int64_t number;
    bool is_number;
};

#define KV(k, s)  ((struct log_kv){ .key = (k), .text = (s) })
#define KVI(k, i) ((struct log_kv){ .key = (k), .number = (i), .is_number = true })

/* Where lines go instead of standard error; NULL: there. For a log that is rotated. */
extern void (*log_sink)(struct str line);
extern enum log_level log_level; /* lines below it cost one comparison */
extern enum log_format log_format;

int log_set_level(const char *name);  /* debug info warn error off; -1: no such name */
int log_set_format(const char *name); /* logfmt json */
void log_write(enum log_level level, const char *msg, const struct log_kv *kv);
void log_render(struct buf *out, enum log_level level, const char *msg, const struct log_kv *kv);

#define log_at(level, msg, ...)                                                                    \
    do {                                                                                           \
        if ((level) >= log_level)                                                                  \
            log_write((level), (msg), &(const struct log_kv[]){ { 0 }, ##__VA_ARGS__, { 0 } }[1]); \
    } while (0)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
