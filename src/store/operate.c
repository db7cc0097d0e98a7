/* operate: the calls for operators: of directories, or of servers by their back end. */
#include <string.h>

#include "store/identity/secret.h"
#include "store/file/survey.h"
#include "store/load/store_load.h"
#include "store/load/remote.h"
#include "store/url.h"

void kvp_store_scan_options_init(kvp_store_scan_options *options)
{
    if (options)
        *options = (kvp_store_scan_options){.struct_size = sizeof *options};
}

kvp_status kvp_store_url_show(const char *url, char *out_text, size_t text_bytes)
{
    if (!url || !out_text || text_bytes == 0)
        return KVP_E_ARG;
    return kvpi_url_show(url, out_text, text_bytes) < text_bytes ? KVP_OK : KVP_E_TOO_SMALL;
}

const char *kvp_found_name(uint32_t found)
{
    static const char *const names[] = {"good", "unreadable", "raced", "unread"};
    if (found < KVP_BAD_REASONS)
        return kvp_bad_name(found);
    return found < KVP_FOUND_KINDS ? names[found - KVP_FOUND_GOOD] : "?";
}

/* The directory that a URL names, or the back end of servers. The options of an engine's URL say
 * nothing here. */
static kvp_status read_root(const char *text, struct kvpi_url *url,
                            const struct kvpi_backend **out_backend, char *out_why,
                            size_t why_bytes)
{
    *out_backend = NULL;
    kvp_status status = kvpi_url_read(text, url, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    if (strcmp(url->scheme, "redis") == 0 || strcmp(url->scheme, "rediss") == 0) {
        *out_backend = kvpi_load_backend(url->scheme, out_why, why_bytes);
        return *out_backend ? KVP_OK : KVP_E_ARG;
    }
    if (strcmp(url->scheme, "file") != 0 || !*url->path) {
        char shown[KVPI_URL_BYTES];
        kvpi_url_show(text, shown, sizeof shown);
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "url is \"%s\", expected \"file:PATH\" or \"redis://HOST\"", shown);
    }
    static const char *const known[] = {"size", "quota", "max_age", "engine", "secret"};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        kvpi_url_option(url, known[i]);
    return kvpi_url_all_used(url, out_why, why_bytes);
}

static const char *find_wrong_option(const kvp_store_scan_options *options)
{
    if (!options || options->struct_size != sizeof *options)
        return "struct_size is not that of this version: use kvp_store_scan_options_init";
    if (options->depth > KVP_SCAN_PAYLOADS)
        return "depth is not one of KVP_SCAN_...";
    if (options->secret_bytes > 0 && (!options->secret || options->secret_bytes < KVPI_SECRET_MIN ||
                                      options->secret_bytes > KVPI_SECRET_MAX))
        return "secret is NULL, or secret_bytes is not 0 or 16..1024";
    return NULL;
}

kvp_status kvp_store_scan(const char *url, const kvp_store_scan_options *options, char *out_why,
                          size_t why_bytes)
{
    kvpi_why(KVP_OK, out_why, why_bytes, "%s", "");
    const char *wrong = find_wrong_option(options);
    if (wrong)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "%s", wrong);
    struct kvpi_url read;
    struct kvpi_secret secret;
    const struct kvpi_backend *backend;
    kvp_store_scan_options own = *options;
    kvp_status status = read_root(url, &read, &backend, out_why, why_bytes);
    /* The option is the engines'; who looks may have the secret, or not. */
    if (status == KVP_OK && own.depth == KVP_SCAN_PAYLOADS && own.secret_bytes == 0) {
        status = kvpi_secret_read(&read, &secret, out_why, why_bytes);
        own.secret = secret.bytes;
        own.secret_bytes = secret.n_bytes;
    }
    if (status == KVP_OK && backend)
        status = kvpi_remote_scan(backend, &read, &own, out_why, why_bytes);
    else if (status == KVP_OK)
        status = kvpi_survey_scan(&kvpi_system_disk, read.path, &own, out_why, why_bytes);
    kvpi_secret_forget(&secret);
    return status;
}

kvp_status kvp_store_clean(const char *url, const kvp_store_match *match,
                           kvp_store_cleaned *out_cleaned, char *out_why, size_t why_bytes)
{
    kvpi_why(KVP_OK, out_why, why_bytes, "%s", "");
    if (!match || !out_cleaned)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "a pointer is NULL");
    struct kvpi_url read;
    const struct kvpi_backend *backend;
    const kvp_status status = read_root(url, &read, &backend, out_why, why_bytes);
    if (status == KVP_OK && backend)
        return kvpi_remote_clean(backend, &read, match, out_cleaned, out_why, why_bytes);
    return status == KVP_OK ? kvpi_survey_clean(&kvpi_system_disk, read.path, match, out_cleaned,
                                                out_why, why_bytes)
                            : status;
}
