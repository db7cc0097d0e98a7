/* tls: the name is checked by libssl itself, in the handshake (SSL_set1_host). The BIO is ours,
 * because the one of libssl writes without MSG_NOSIGNAL. */
#define _GNU_SOURCE
#include "store/redis/link/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* ----------------------------------------------------------------------------------- the socket */

static int fd_of(BIO *bio)
{
    return (int)(intptr_t)BIO_get_data(bio);
}

static int is_later(void)
{
    return errno == EAGAIN || errno == EINTR;
}

static int socket_write(BIO *bio, const char *bytes, int n_bytes)
{
    BIO_clear_retry_flags(bio);
    const ssize_t n = send(fd_of(bio), bytes, (size_t)n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && is_later())
        BIO_set_retry_write(bio);
    return (int)n;
}

static int socket_read(BIO *bio, char *bytes, int n_bytes)
{
    BIO_clear_retry_flags(bio);
    const ssize_t n = recv(fd_of(bio), bytes, (size_t)n_bytes, MSG_DONTWAIT);
    if (n < 0 && is_later())
        BIO_set_retry_read(bio);
    return (int)n;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kvpager");
    if (method && BIO_meth_set_write(method, socket_write) &&
        BIO_meth_set_read(method, socket_read) && BIO_meth_set_ctrl(method, socket_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---------------------------------------------------------------------------------- open, close */

/* What libssl says last, in words. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "no reason given";
}

static kvp_status load_files(struct kvpi_tls *tls, struct kvpi_url *url, char *out_why,
                             size_t why_bytes)
{
    const char *ca = kvpi_url_option(url, "ca");
    const char *cert = kvpi_url_option(url, "cert");
    const char *key = kvpi_url_option(url, "key");
    if (!cert != !key)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "cert and key go together");
    const int trusts = ca ? SSL_CTX_load_verify_file(tls->context, ca)
                          : SSL_CTX_set_default_verify_paths(tls->context);
    if (trusts != 1)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "ca \"%s\" cannot be read: %s",
                        ca ? ca : "of the system", reason());
    if (cert && SSL_CTX_use_certificate_chain_file(tls->context, cert) != 1)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "cert \"%s\" cannot be read: %s", cert,
                        reason());
    if (key && (SSL_CTX_use_PrivateKey_file(tls->context, key, SSL_FILETYPE_PEM) != 1 ||
                SSL_CTX_check_private_key(tls->context) != 1))
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "key \"%s\" cannot be read, or is not that of cert: %s", key, reason());
    return KVP_OK;
}

kvp_status kvpi_tls_open(struct kvpi_tls *tls, struct kvpi_url *url, char *out_why,
                         size_t why_bytes)
{
    const char *name = kvpi_url_option(url, "name");
    if (name && (!*name || strlen(name) >= sizeof tls->name))
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "name is empty or too long");
    snprintf(tls->name, sizeof tls->name, "%s", name ? name : "");
    ERR_clear_error();
    tls->method = make_method();
    tls->context = SSL_CTX_new(TLS_client_method());
    if (!tls->method || !tls->context ||
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) != 1)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "libssl gave nothing: %s", reason());
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    /* What is sent lies where it lay, but the pieces may be cut differently. */
    SSL_CTX_set_mode(tls->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return load_files(tls, url, out_why, why_bytes);
}

void kvpi_tls_close(struct kvpi_tls *tls)
{
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    tls->context = NULL;
    tls->method = NULL;
}

/* ------------------------------------------------------------------------------------- a stream */

static int is_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* 0: no memory. */
static int expect_name(SSL *ssl, const char *name)
{
    if (is_address(name))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) && SSL_set_tlsext_host_name(ssl, name);
}

kvpi_tls_stream *kvpi_tls_start(const struct kvpi_tls *tls, const char *host, int fd)
{
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = ssl ? BIO_new(tls->method) : NULL;
    if (!bio || !expect_name(ssl, tls->name[0] ? tls->name : host)) {
        BIO_free(bio);
        SSL_free(ssl);
        return NULL;
    }
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_connect_state(ssl);
    return ssl;
}

void kvpi_tls_stop(kvpi_tls_stream *stream)
{
    SSL_free(stream);
}

/* 0: later; KVPI_TLS_LOST or KVPI_TLS_REFUSED. */
static ssize_t tell(SSL *ssl, int result, char *out_why, size_t why_bytes)
{
    const int error = SSL_get_error(ssl, result);
    const long verified = SSL_get_verify_result(ssl);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return 0;
    if (verified != X509_V_OK)
        snprintf(out_why, why_bytes, "the certificate is refused: %s",
                 X509_verify_cert_error_string(verified));
    else if (error == SSL_ERROR_SSL)
        snprintf(out_why, why_bytes, "TLS: %s", reason());
    else
        snprintf(out_why, why_bytes, "the server has closed the connection");
    return error == SSL_ERROR_SSL || verified != X509_V_OK ? KVPI_TLS_REFUSED : KVPI_TLS_LOST;
}

static int at_most(size_t n_bytes)
{
    return n_bytes < INT_MAX ? (int)n_bytes : INT_MAX;
}

ssize_t kvpi_tls_read(kvpi_tls_stream *stream, void *out_bytes, size_t n_bytes, char *out_why,
                      size_t why_bytes)
{
    ERR_clear_error();
    const int n = SSL_read(stream, out_bytes, at_most(n_bytes));
    return n > 0 ? n : tell(stream, n, out_why, why_bytes);
}

ssize_t kvpi_tls_write(kvpi_tls_stream *stream, const void *bytes, size_t n_bytes, char *out_why,
                       size_t why_bytes)
{
    ERR_clear_error();
    const int n = SSL_write(stream, bytes, at_most(n_bytes));
    return n > 0 ? n : tell(stream, n, out_why, why_bytes);
}

short kvpi_tls_events(const kvpi_tls_stream *stream, int sends)
{
    if (!SSL_is_init_finished(stream))
        sends = SSL_want_write(stream);
    return (short)(sends ? POLLIN | POLLOUT : POLLIN);
}
