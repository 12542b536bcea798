/* dirs.h - where Cove keeps what must last and what ends with the machine, unless told otherwise.
 */
#ifndef CLI_DIRS_H
#define CLI_DIRS_H

char *dirs_data(void); /* caller frees: /var/lib/cove, or below XDG_DATA_HOME without root */
char *dirs_run(void);  /* caller frees: /run/cove, or below XDG_RUNTIME_DIR without root */

#endif
