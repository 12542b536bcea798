/* envd.h - which release of E2B's guest protocol ours equals: SDKs switch features on by it. */
#ifndef MODEL_ENVD_H
#define MODEL_ENVD_H

/* Recursive watches, octet-stream uploads, file metadata and later ones: clients look at it. */
#define ENVD_VERSION "0.6.13"

#endif
