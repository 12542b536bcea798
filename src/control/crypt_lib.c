/* crypt_lib.c - the functions of libcrypt that we call; see base/lazy.h. */
#include <crypt.h>

#include "control/impl.h"

#define FUNCTIONS(X) X(crypt_gensalt_rn) X(crypt_r)

LAZY_LIBRARY(lazy_crypt, "libcrypt.so.1", "libcrypt1", FUNCTIONS)
