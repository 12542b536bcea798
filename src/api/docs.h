/* docs.h - the API as one page for people. */
#ifndef API_DOCS_H
#define API_DOCS_H

#include "io/httpd.h"

call_fn docs_get;

#endif
