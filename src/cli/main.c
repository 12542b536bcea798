/* main.c - the program cove: finds the command in the table and runs it. Nothing is initialised
 * here that a command may not need: `cove --version` is a parse and a write. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/help.h"

/* With one of 0, 1, 2 closed the next file we open would take its number, and a message for people
 * would end up inside it. */
static void hold_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) /* the lowest number: fd */
            _exit(126);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    struct args a;
    int status = 0;

    hold_standard_descriptors();
    if (args_parse(&a, &command_cove, argc, argv, &err) < 0)
        status = args_fail(&a, args_usage_status(&a), &err);
    else if (a.help)
        help_print(a.command, a.path);
    else
        status = a.command->run(&a);
    if (fflush(stdout) || ferror(stdout)) {
        err_sys(&err, "standard output");
        status = args_fail(&a, status ? status : 1, &err);
    }
    args_free(&a);
    return status;
}
