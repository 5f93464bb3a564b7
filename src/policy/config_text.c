/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/config_text.h"

#include <glib.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct reader {
    wb_config_take take;
    wb_config_complain complain;
    void *data;
    char *section;
    bool lost; /* after an invalid section line: the meaning of its keys is unknown */
};

void wb_config_complain_of(wb_config_complain complain, void *data, unsigned line, unsigned column,
                           const char *format, ...)
{
    struct wb_config_mistake mistake = {.line = line, .column = column};
    va_list args;

    va_start(args, format);
    vsnprintf(mistake.text, sizeof(mistake.text), format, args);
    va_end(args);
    /* The text was cut in the middle of a character, perhaps. */
    for (const char *end; !g_utf8_validate(mistake.text, -1, &end);)
        mistake.text[end - mistake.text] = '\0';
    for (char *c = mistake.text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    complain(&mistake, data);
}

static unsigned column_of(const char *line, const char *at)
{
    return (unsigned)g_utf8_strlen(line, at - line) + 1;
}

static char *skip_blanks(char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* `line` is valid UTF-8 and may be written to. */
static void read_section(struct reader *reader, unsigned number, char *line, char *at)
{
    char *name = skip_blanks(at + 1), *end = name + strlen(name);

    reader->lost = true;
    if (end == name || end[-1] != ']') {
        wb_config_complain_of(reader->complain, reader->data, number, column_of(line, at),
                              "%s: invalid section; write [NAME] in a line of its own", at);
        return;
    }
    end[-1] = '\0';
    g_strchomp(name);
    reader->lost = false;
    g_free(reader->section);
    reader->section = g_strdup(name);
    reader->take(&(struct wb_config_line){.number = number, .column = column_of(line, name),
                                          .section = reader->section},
                 reader->data);
}

static void read_key(struct reader *reader, unsigned number, char *line, char *at)
{
    struct wb_config_line found = {.number = number, .column = column_of(line, at), .section = reader->section};
    char *equals = strchr(at, '='), *value;

    if (!equals) {
        wb_config_complain_of(reader->complain, reader->data, number, found.column,
                              "%s: invalid line; write `key = value`, [section] or # comment", at);
        return;
    }
    if (equals == at) {
        wb_config_complain_of(reader->complain, reader->data, number, found.column,
                              "%s: the key is missing; write `key = value`", at);
        return;
    }
    value = skip_blanks(equals + 1);
    found.value_column = column_of(line, value);
    *equals = '\0';
    found.key = g_strchomp(at);
    found.value = value;
    if (!reader->lost)
        reader->take(&found, reader->data);
}

static void read_line(struct reader *reader, unsigned number, char *line, size_t length)
{
    const char *bad;
    char *at;

    if (!g_utf8_validate(line, (gssize)length, &bad)) {
        wb_config_complain_of(reader->complain, reader->data, number, column_of(line, bad),
                              "the byte 0x%02x is not UTF-8 text", (unsigned char)*bad);
        return;
    }
    g_strchomp(line);
    at = skip_blanks(line);
    if (*at == '[')
        read_section(reader, number, line, at);
    else if (*at != '\0' && *at != '#' && *at != ';')
        read_key(reader, number, line, at);
}

void wb_config_read_lines(const char *text, size_t length, wb_config_take take, wb_config_complain complain,
                          void *data)
{
    struct reader reader = {.take = take, .complain = complain, .data = data, .section = g_strdup("")};
    unsigned number = 0;

    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    while (length > 0) {
        const char *newline = memchr(text, '\n', length);
        size_t size = newline ? (size_t)(newline - text) : length;
        g_autofree char *line = g_strndup(text, size);

        /* g_strndup ends at a NUL, which is no text. */
        memcpy(line, text, size);
        read_line(&reader, ++number, line, size);
        text += size + (newline != NULL);
        length -= size + (newline != NULL);
    }
    g_free(reader.section);
}
