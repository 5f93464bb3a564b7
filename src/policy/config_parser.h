/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the parts of the parser of wayback.conf share; nobody else includes it. */

#include "policy/config.h"
#include <glib.h>

struct wb_config_parser {
    struct wb_config *config;
    wb_config_complain complain;
    void *data;
    bool failed;
    GHashTable *seen;            /* "section\nkey": the line */
    struct wb_policy_rule *rule; /* of the section with patterns that we are in, or NULL: it could not be read */
    struct {
        unsigned line, column;
    } max_size, reserve;
};

/* A wb_config_complain; `data` is the parser. */
void wb_config_parser_complain(const struct wb_config_mistake *mistake, void *data);

#define WB_COMPLAIN(parser, line, column, ...) \
    wb_config_complain_of(wb_config_parser_complain, (parser), (line), (column), __VA_ARGS__)

void wb_config_unknown(struct wb_config_parser *parser, const struct wb_config_line *line, const char *what,
                       const char *word, const char *const *known);

/* Digits and nothing else. -1: no number, or one above `most`. */
int64_t wb_config_number(const char *text, size_t length, int64_t most);
/* "10m", "1h30m", "1y" as seconds; -1 where it is none. */
int64_t wb_config_duration(const char *text);
/* What to add where somebody put a comment behind a value. */
const char *wb_config_comment_hint(const char *value);

/* ---- config_policy.c ------------------------------------------------------------------------- */

bool wb_config_is_path_section(const char *section);
/* A section [path "PATTERN"...] begins. */
void wb_config_take_path(struct wb_config_parser *parser, const struct wb_config_line *line);
/* compact; WB_MODES: it was complained of. */
enum wb_compact_mode wb_config_compact_mode(struct wb_config_parser *parser, const struct wb_config_line *line);
void wb_config_take_path_compact(struct wb_config_parser *parser, const struct wb_config_line *line);
/* history, of a section with patterns. */
void wb_config_take_path_history(struct wb_config_parser *parser, const struct wb_config_line *line);
/* keep, thin, keep-versions; false: it is no such key. */
bool wb_config_take_retention(struct wb_config_parser *parser, struct wb_policy_rule *rule,
                              const struct wb_config_line *line);
/* max-size, user-max-size, reserve. */
bool wb_config_take_room(struct wb_config_parser *parser, const struct wb_config_line *line);
/* When all was read: what contradicts itself. */
void wb_config_check_policy(struct wb_config_parser *parser);
