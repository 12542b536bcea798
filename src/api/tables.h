/* tables.h - the route tables, one per file that serves a group of them. */
#ifndef API_TABLES_H
#define API_TABLES_H

#include "io/httpd.h"

extern const struct route e2b_create_routes[], e2b_sandbox_routes[], e2b_pause_routes[],
    e2b_watch_routes[], e2b_template_routes[], e2b_later_routes[];
extern const struct route native_box_routes[], native_watch_routes[], native_user_routes[];
extern const struct route api_tunnel_routes[]; /* tunnel.c */
extern const struct route api_system_routes[];

#endif
