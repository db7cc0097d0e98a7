/* secret: the secret of keyed codes, as a URL names it: secret=file:PATH. */
#ifndef KVPI_STORE_SECRET_H
#define KVPI_STORE_SECRET_H

#include "store/identity/crypto.h"
#include "store/url.h"

struct kvpi_secret {
    uint8_t bytes[KVPI_SECRET_MAX];
    size_t n_bytes; /* 0: the URL names none */
};

/* Read the file that the URL names, if it does. It must be a file, not a link, of this user or of
 * root, and no other user may read or write it. White space at both ends is no part of the secret.
 * KVP_OK; KVP_E_ARG, with a sentence that has nothing of the secret in it. */
kvp_status kvpi_secret_read(struct kvpi_url *url, struct kvpi_secret *out_secret, char *out_why,
                            size_t why_bytes);

/* Overwrite it. */
void kvpi_secret_forget(struct kvpi_secret *secret);

#endif
