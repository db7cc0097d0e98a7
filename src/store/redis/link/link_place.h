/* link_place: the server that a URL names: redis://user:password@host:port/db. */
#ifndef KVPI_STORE_REDIS_PLACE_H
#define KVPI_STORE_REDIS_PLACE_H

#include "store/url.h"

enum { KVPI_PLACE_HOST = 256, KVPI_PLACE_SECRET = 1024 };

struct kvpi_place_of_server {
    char host[KVPI_PLACE_HOST];
    char user[KVPI_PLACE_SECRET];     /* "": the default user */
    char password[KVPI_PLACE_SECRET]; /* "": no AUTH is sent */
    int port;
    int database;
};

/* Read what follows the scheme. User and password may have %XX in them; a host with colons stands
 * in brackets. KVP_OK; KVP_E_ARG, and the sentence never has the password in it. */
kvp_status kvpi_place_read(const char *path, struct kvpi_place_of_server *out_place, char *out_why,
                           size_t why_bytes);

/* Whether the host is this machine by its name: localhost, 127.x.x.x or ::1. */
int kvpi_place_is_loopback(const struct kvpi_place_of_server *place);

#endif
