/* template_impl.h - what template*.c share and nobody else needs. */
#ifndef JAIL_TEMPLATE_IMPL_H
#define JAIL_TEMPLATE_IMPL_H

#include "jail/template.h"

#define TEMPLATE_FILE "template.json"
#define TEMPLATE_ROOT "rootfs"
#define TEMPLATE_TMP  ".tmp." /* no template's name begins with a dot */
#define TEMPLATE_GONE ".gone."

int template_check_name(const char *name, struct err *err);
/* The folder of templates; -1 with err. make: make it, and the data directory, when missing. */
int template_folder(const char *data_dir, bool make, struct err *err);
/* An O_PATH of a directory given by its absolute path, not a link itself, not the whole machine. */
int template_open_directory(const char *path, struct err *err);

int template_load(int dir, struct template *out, struct err *err); /* from its directory */
int template_save(int dir, const struct template *t, struct err *err);

#endif
