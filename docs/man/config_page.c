/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes the keys of wayback.conf into wayback.conf(5), from the table in src/policy/config.c: prints PAGE with the
 * text between each pair of lines `.\" keys: NAME...` and `.\" end of keys` replaced.
 */
#include "policy/config.h"
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN ".\\\" keys: "
#define END ".\\\" end of keys"
#define WIDTH 100

/* Wraps at blanks. No line may begin like a request of roff. */
static void put_wrapped(GString *page, const char *text)
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    size_t column = 0;

    for (char **word = words; *word; word++) {
        if (column && column + 1 + strlen(*word) > WIDTH) {
            g_string_append_c(page, '\n');
            column = 0;
        }
        if (column)
            g_string_append_c(page, ' ');
        else if (**word == '.' || **word == '\'')
            g_string_append(page, "\\&");
        g_string_append(page, *word);
        column += strlen(*word) + 1;
    }
    g_string_append_c(page, '\n');
}

/* A pair of * encloses bold text. */
static void put_prose(GString *page, const char *text)
{
    g_autoptr(GString) roff = g_string_new(NULL);
    bool bold = false;

    for (; *text; text++) {
        if (*text == '*') {
            bold = !bold;
            g_string_append(roff, bold ? "\\fB" : "\\fR");
        } else {
            g_string_append(roff, bold && *text == '-' ? "\\-" : (char[]){*text, '\0'});
        }
    }
    put_wrapped(page, roff->str);
}

/* NAME = SYNTAX: capitals are placeholders and italic, the rest is literal and bold. */
static void put_head(GString *page, const struct wb_config_key *key)
{
    g_autofree char *head = g_strdup_printf("%s = %s", key->name, key->syntax);
    char font = '\0';

    for (const char *at = head; *at; at++) {
        char next = *at == '|' ? 'R' : g_ascii_isupper(*at) ? 'I' : 'B';

        if (next != font && *at != ' ')
            g_string_append_printf(page, "\\f%c", font = next);
        g_string_append(page, *at == '-' ? "\\-" : (char[]){*at, '\0'});
    }
    g_string_append(page, "\\fR\n");
}

static void put_key(GString *page, const struct wb_config_key *key)
{
    g_auto(GStrv) paragraphs = g_strsplit(key->manual ? key->manual : "", "\n", -1);
    g_autofree char *initial = key->initial ? g_strdup_printf(" The default is *%s*.", key->initial) : g_strdup("");
    g_autofree char *first = g_strconcat(key->help, initial, paragraphs[0] && *paragraphs[0] ? " " : "", paragraphs[0],
                                         NULL);
    bool values = false;

    g_string_append(page, ".TP\n");
    put_head(page, key);
    put_prose(page, first);
    for (size_t i = 1; paragraphs[0] && paragraphs[i]; i++) {
        char *tab = strchr(paragraphs[i], '\t');

        if ((tab != NULL) != values)
            g_string_append(page, tab ? ".RS\n" : ".RE\n");
        values = tab != NULL;
        if (tab)
            g_string_append_printf(page, ".TP\n.B %.*s\n", (int)(tab - paragraphs[i]), paragraphs[i]);
        else
            g_string_append(page, ".IP\n");
        put_prose(page, tab ? tab + 1 : paragraphs[i]);
    }
    if (values)
        g_string_append(page, ".RE\n");
}

static void put_keys(GString *page, const char *names, GHashTable *done)
{
    g_auto(GStrv) list = g_strsplit(names, " ", -1);

    for (char **name = list; *name; name++) {
        const struct wb_config_key *key = wb_config_keys;

        while (key->name && strcmp(key->name, *name) != 0)
            key++;
        if (!key->name || !g_hash_table_add(done, (char *)key->name)) {
            fprintf(stderr, "config_page: %s: no such key, or listed twice\n", *name);
            exit(EXIT_FAILURE);
        }
        put_key(page, key);
    }
}

int main(int argc, char **argv)
{
    g_autoptr(GHashTable) done = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GString) page = g_string_new(NULL);
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;
    bool skip = false;

    if (argc != 2 || !g_file_get_contents(argv[1], &text, NULL, NULL)) {
        fprintf(stderr, "usage: config_page PAGE\n");
        return 2;
    }
    lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        skip = skip && strcmp(*line, END) != 0;
        if (!skip)
            g_string_append_printf(page, line[1] ? "%s\n" : "%s", *line);
        if (g_str_has_prefix(*line, BEGIN)) {
            put_keys(page, *line + strlen(BEGIN), done);
            skip = true;
        }
    }
    for (const struct wb_config_key *key = wb_config_keys; key->name; key++) {
        if (!g_hash_table_contains(done, key->name)) {
            fprintf(stderr, "config_page: %s: not in %s; name it in a line `%s...`\n", key->name, argv[1], BEGIN);
            return EXIT_FAILURE;
        }
    }
    fputs(page->str, stdout);
    return EXIT_SUCCESS;
}
