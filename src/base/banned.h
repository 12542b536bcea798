/* banned.h - functions that have cost other projects a CVE become compile errors here. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

/* The headers that declare them come first, so that only our uses meet the poison. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat strtok sprintf vsprintf gets atoi atol atoll
#pragma GCC poison gmtime localtime ctime asctime tmpnam mktemp

#endif
