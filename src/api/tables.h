/* tables.h - the route tables, one per file that serves a group of them. */
#ifndef API_TABLES_H
#define API_TABLES_H

#include "io/httpd.h"

extern const struct route e2b_create_routes[], e2b_sandbox_routes[], e2b_pause_routes[],
    e2b_watch_routes[], e2b_template_routes[], e2b_later_routes[];
extern const struct route native_box_routes[], native_watch_routes[], native_user_routes[],
    native_process_routes[], native_orphan_routes[], native_port_routes[];
extern const struct route api_tunnel_routes[]; /* tunnel.c */
extern const struct route api_system_routes[];
extern const struct route contract_auth_routes[], contract_box_routes[], contract_run_routes[],
    contract_file_routes[], contract_url_routes[];

/* What each of the two documents is made of; api_tables has both. They end with NULL. */
extern const struct route *const native_tables[], *const contract_tables[];

/* The contract's paths have rules and errors of their own (contract.c). */
bool contract_owns(struct str path);
int contract_before(struct call *c, struct err *err);
bool contract_refuse(struct call *c, const struct err *err);

#endif
