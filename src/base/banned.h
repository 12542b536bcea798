/* banned.h - functions that have cost other projects a CVE become compile errors here. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

/* The headers that declare them come first, so that only our own uses meet the macros. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#undef strcpy
#define strcpy(...) banned_strcpy_use_buf_or_memcpy
#undef strcat
#define strcat(...) banned_strcat_use_buf
#undef strncpy
#define strncpy(...) banned_strncpy_use_memcpy
#undef strncat
#define strncat(...) banned_strncat_use_buf
#undef strtok
#define strtok(...) banned_strtok_use_str_next
#undef sprintf
#define sprintf(...) banned_sprintf_use_snprintf
#undef vsprintf
#define vsprintf(...) banned_vsprintf_use_vsnprintf
#undef atoi
#define atoi(...) banned_atoi_use_str_i64
#undef atol
#define atol(...) banned_atol_use_str_i64
#undef gmtime
#define gmtime(...) banned_gmtime_use_gmtime_r
#undef localtime
#define localtime(...) banned_localtime_use_localtime_r
#undef mktemp
#define mktemp(...) banned_mktemp_use_O_TMPFILE

#endif
