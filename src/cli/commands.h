/* commands.h - the list of commands. A command is one file and one line in each of the two lists:
 * here and in commands.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/args.h"

extern const struct command command_cove; /* the program itself: its subs are the commands */

extern const struct command command_backup;
extern const struct command command_completion;
extern const struct command command_config;
extern const struct command command_cp;
extern const struct command command_create;
extern const struct command command_doctor;
extern const struct command command_events;
extern const struct command command_exec;
extern const struct command command_forward;
extern const struct command command_help;
extern const struct command command_keep;
extern const struct command command_key;
extern const struct command command_kill;
extern const struct command command_layer;
extern const struct command command_pause;
extern const struct command command_resume;
extern const struct command command_logs;
extern const struct command command_man;
extern const struct command command_orphans;
extern const struct command command_ps;
extern const struct command command_restore;
extern const struct command command_run;
extern const struct command command_serve;
extern const struct command command_shell;
extern const struct command command_template;
extern const struct command command_tls;
extern const struct command command_url;
extern const struct command command_user;
extern const struct command command_version;

#endif
