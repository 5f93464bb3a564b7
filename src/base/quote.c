/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/quote.h"

#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_visible(gunichar c)
{
    return !g_unichar_iscntrl(c) && (g_unichar_isprint(c) || g_unichar_ismark(c));
}

/* The length of the visible character at `bytes`; 0: it is not visible, or not UTF-8. */
static size_t visible_length(const char *bytes)
{
    gunichar c;

    if ((unsigned char)*bytes < 0x80)
        return *bytes >= ' ' && *bytes != 0x7f;
    c = g_utf8_get_char_validated(bytes, -1);
    if (c == (gunichar)-1 || c == (gunichar)-2 || !is_visible(c))
        return 0;
    return (size_t)(g_utf8_next_char(bytes) - bytes);
}

/* Quotes the character at *bytes into `piece` and advances *bytes past it. */
static void quote_one(const char **bytes, char piece[8])
{
    size_t length = visible_length(*bytes);

    if (length > 0) {
        memcpy(piece, *bytes, length);
        piece[length] = '\0';
        *bytes += length;
        return;
    }
    if (**bytes == '\n' || **bytes == '\t')
        snprintf(piece, 8, "\\%c", **bytes == '\n' ? 'n' : 't');
    else
        snprintf(piece, 8, "\\x%02x", (unsigned char)**bytes);
    (*bytes)++;
}

size_t wb_quote_into(char *to, size_t size, const char *bytes)
{
    size_t used = 0;
    char piece[8];

    while (*bytes) {
        size_t length;

        quote_one(&bytes, piece);
        length = strlen(piece);
        if (used + length >= size)
            break;
        memcpy(to + used, piece, length);
        used += length;
    }
    to[used] = '\0';
    return used;
}

char *wb_quote_text(const char *bytes)
{
    GString *text = g_string_new(NULL);
    char piece[8];

    while (*bytes) {
        quote_one(&bytes, piece);
        g_string_append(text, piece);
    }
    return g_string_free(text, FALSE);
}

static bool is_all_visible(const char *bytes)
{
    for (size_t length; *bytes; bytes += length) {
        length = visible_length(bytes);
        if (length == 0)
            return false;
    }
    return true;
}

char *wb_quote_word(const char *bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+:,./-";
    GString *word;

    if (*bytes && bytes[strspn(bytes, plain)] == '\0')
        return g_strdup(bytes);
    if (is_all_visible(bytes))
        return g_shell_quote(bytes);
    word = g_string_new("$'");
    while (*bytes) {
        size_t length = visible_length(bytes);

        if (*bytes == '\\' || *bytes == '\'')
            g_string_append_c(word, '\\');
        if (length > 0)
            g_string_append_len(word, bytes, (gssize)length);
        else if (*bytes == '\n')
            g_string_append(word, "\\n");
        else
            g_string_append_printf(word, "\\%03o", (unsigned char)*bytes);
        bytes += MAX(length, 1);
    }
    g_string_append_c(word, '\'');
    return g_string_free(word, FALSE);
}

char *wb_quote_json(const char *json)
{
    GString *text = g_string_new(NULL);

    for (const char *next; *json; json = next) {
        gunichar c = g_utf8_get_char(json);

        next = g_utf8_next_char(json);
        if (c < 0x7f || is_visible(c))
            g_string_append_len(text, json, next - json);
        else if (c < 0x10000)
            g_string_append_printf(text, "\\u%04x", c);
        else
            g_string_append_printf(text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
    }
    return g_string_free(text, FALSE);
}
