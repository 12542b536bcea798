/* settings.c - see settings.h. The keeper and the server are forks of one process, so one list
 * serves both. */
#include "cli/settings.h"

#include "api/contract.h"
#include "control/control.h"
#include "io/fetch.h"
#include "io/http.h"
#include "io/proxy.h"
#include "jail/dns_relay.h"
#include "jail/net_plan.h"
#include "jail/volume.h"
#include "keep/keep.h"
#include "provider/provider.h"
#include "router/router.h"

const struct setting *const settings_of_serve[] = { http_settings,         client_settings,
                                                    proxy_settings,        control_settings,
                                                    control_auth_settings, contract_settings,
                                                    fetch_settings,        keep_settings,
                                                    dns_settings,          net_settings,
                                                    volume_settings,       provider_settings,
                                                    router_settings,       NULL };

const struct setting *const settings_of_keep[] = { keep_settings, dns_settings, net_settings,
                                                   volume_settings, NULL };
