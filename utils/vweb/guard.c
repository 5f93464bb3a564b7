/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vweb/guard.h"
#include <arpa/inet.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>

#define TICKETS_MAX 64
#define TICKET_LIFE_US (60 * G_USEC_PER_SEC)

/* ---- the token ----------------------------------------------------------------------------------- */

bool web_token_make(char token[WEB_TOKEN_TEXT])
{
    unsigned char bytes[WEB_TOKEN_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++)
        g_snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

bool web_token_is(const char *token, const char *given)
{
    size_t length = strlen(token);
    unsigned char differs = 0;

    if (!given || strlen(given) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        differs |= (unsigned char)((unsigned char)token[i] ^ (unsigned char)given[i]);
    return differs == 0;
}

/* ---- Host and Origin ----------------------------------------------------------------------------- */

/* The name in NAME, NAME:PORT, [ADDRESS] or [ADDRESS]:PORT; g_free. NULL: it is none of these. */
static char *name_of(const char *host)
{
    const char *end, *port;

    if (*host == '[') {
        end = strchr(++host, ']');
        port = end ? end + 1 : NULL;
    } else {
        end = host + strcspn(host, ":");
        port = end;
    }
    if (!end || end == host || (*port && *port != ':'))
        return NULL;
    if (*port && (!port[1] || port[1 + strspn(port + 1, "0123456789")]))
        return NULL;
    return g_strndup(host, (gsize)(end - host));
}

static bool is_address(const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

bool web_host_is_ours(const struct web *web, const char *host)
{
    g_autofree char *name = host ? name_of(host) : NULL;

    for (guint i = 0; name && i < web->hosts->len; i++)
        if (g_ascii_strcasecmp(web->hosts->pdata[i], name) == 0)
            return true;
    return name && web->any_address && is_address(name);
}

bool web_origin_is_ours(const char *origin, const char *host)
{
    g_autofree char *own = host ? g_strconcat("http://", host, NULL) : NULL;

    return origin && own && g_ascii_strcasecmp(origin, own) == 0;
}

/* ---- paths --------------------------------------------------------------------------------------- */

bool web_path_is_fine(const char *path)
{
    g_auto(GStrv) parts = NULL;

    if (!*path)
        return true;
    if (strlen(path) >= PATH_MAX)
        return false;
    parts = g_strsplit(path, "/", -1);
    for (char **part = parts; *part; part++)
        if (!**part || strcmp(*part, ".") == 0 || strcmp(*part, "..") == 0 || strlen(*part) > NAME_MAX)
            return false;
    return true;
}

/* ---- tickets ------------------------------------------------------------------------------------- */

struct web_tickets {
    GMutex lock;
    GHashTable *tickets; /* text -> struct kept */
};

struct kept {
    struct web_ticket *ticket;
    int64_t until; /* g_get_monotonic_time */
};

void web_ticket_free(void *data)
{
    struct web_ticket *ticket = data;

    if (!ticket)
        return;
    g_free(ticket->path);
    g_free(ticket->name);
    g_free(ticket);
}

static void kept_free(void *data)
{
    struct kept *kept = data;

    web_ticket_free(kept->ticket);
    g_free(kept);
}

struct web_tickets *web_tickets_new(void)
{
    struct web_tickets *tickets = g_new0(struct web_tickets, 1);

    g_mutex_init(&tickets->lock);
    tickets->tickets = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, kept_free);
    return tickets;
}

struct web_tickets *web_tickets_free(struct web_tickets *tickets)
{
    if (!tickets)
        return NULL;
    g_hash_table_unref(tickets->tickets);
    g_mutex_clear(&tickets->lock);
    g_free(tickets);
    return NULL;
}

static gboolean is_over(gpointer key, gpointer value, gpointer data)
{
    return ((const struct kept *)value)->until < g_get_monotonic_time();
}

bool web_tickets_add(struct web_tickets *tickets, const char *path, const char *name, char text[WEB_TOKEN_TEXT])
{
    struct kept *kept;
    bool fits;

    if (!web_token_make(text))
        return false;
    kept = g_new0(struct kept, 1);
    kept->ticket = g_new0(struct web_ticket, 1);
    kept->ticket->path = g_strdup(path);
    kept->ticket->name = g_strdup(name);
    kept->until = g_get_monotonic_time() + TICKET_LIFE_US;
    g_mutex_lock(&tickets->lock);
    g_hash_table_foreach_remove(tickets->tickets, is_over, NULL);
    fits = g_hash_table_size(tickets->tickets) < TICKETS_MAX;
    if (fits)
        g_hash_table_insert(tickets->tickets, g_strdup(text), kept);
    g_mutex_unlock(&tickets->lock);
    if (!fits)
        kept_free(kept);
    return fits;
}

struct web_ticket *web_tickets_take(struct web_tickets *tickets, const char *text)
{
    struct web_ticket *ticket = NULL;
    struct kept *kept;

    g_mutex_lock(&tickets->lock);
    g_hash_table_foreach_remove(tickets->tickets, is_over, NULL);
    kept = g_hash_table_lookup(tickets->tickets, text);
    if (kept) {
        ticket = g_steal_pointer(&kept->ticket);
        g_hash_table_remove(tickets->tickets, text);
    }
    g_mutex_unlock(&tickets->lock);
    return ticket;
}
