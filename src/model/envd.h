/* envd.h - which release of E2B's guest protocol ours equals: SDKs switch features on by it. */
#ifndef MODEL_ENVD_H
#define MODEL_ENVD_H

#define ENVD_VERSION "0.6.13" /* recursive watches, octet-stream uploads, file metadata and later  \
                               */

#endif
