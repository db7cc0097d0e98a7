/* guard: the API key, and the names under which this server is asked. */
#include "guard.h"
#include "fields.h"

#include <string.h>

/* In a time that does not depend on where they differ. */
static int is_equal(const char *a, const char *b)
{
    const size_t n = strlen(a), n_b = strlen(b);
    unsigned char differ = n != n_b;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(a[i] ^ b[n_b > 0 ? i % n_b : 0]);
    return differ == 0;
}

static int has_key(const kvpi_options *options, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (options->api_key == NULL)
        return 1;
    return authorization != NULL && strncmp(authorization, scheme, sizeof scheme - 1) == 0 &&
           is_equal(authorization + sizeof scheme - 1, options->api_key);
}

/* Host: without its port. */
static size_t name_bytes(const char *host)
{
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        return end != NULL ? (size_t)(end - host) + 1 : strlen(host);
    }
    return strcspn(host, ":");
}

static int is_name(const char *host, const char *name)
{
    const size_t n = name_bytes(host);
    return n == strlen(name) && memcmp(host, name, n) == 0;
}

/* A server of this machine only is asked under this machine's names. Others are a site's that has
 * its name lead here. */
static int is_ours(const kvpi_options *options, const char *host)
{
    if (host == NULL || !kvpi_options_is_loopback(options->host))
        return 1;
    return is_name(host, "localhost") || is_name(host, "[::1]") || is_name(host, options->host) ||
           (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == name_bytes(host));
}

static int is_same_site(const kvpi_headers *headers)
{
    const char *origin = headers->origin;
    if (origin == NULL)
        return 1;
    const char *name = strstr(origin, "://");
    return name != NULL && headers->host != NULL && strcmp(name + 3, headers->host) == 0;
}

int kvpi_guard(const kvpi_options *options, const kvpi_headers *headers, int is_public,
               kvpi_refusal *out_refusal)
{
    if (!is_ours(options, headers->host))
        (void)kvpi_refuse(out_refusal, 403, "Host", "Host is not this server");
    else if (!is_same_site(headers))
        (void)kvpi_refuse(out_refusal, 403, "Origin", "Origin is another site");
    else if (!is_public && !has_key(options, headers->authorization))
        (void)kvpi_refuse(out_refusal, 401, "Authorization", "the API key is missing or wrong");
    return out_refusal->status == 0 ? 0 : -1;
}
