/* serve.h - a guest from its command line to its end. */
#ifndef GUEST_SERVE_H
#define GUEST_SERVE_H

int guest_main(int argc, char **argv); /* the exit status */

#endif
