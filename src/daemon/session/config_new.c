/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a history begins with: one line that says what is kept, for how long, and where to say otherwise. */
#include "daemon/options/config_file.h"

#include "daemon/core/session.h"
#include "daemon/system/report.h"
#include "format/format.h"
#include <errno.h>
#include <glib.h>

static char *in_words(const struct wb_policy *policy)
{
    bool has_room = wb_policy_has_room(policy);
    int64_t age = has_room ? wb_policy_hold(policy) : wb_policy_reach(policy);
    int64_t least = MIN(wb_policy_least(policy), age);
    g_autofree char *span = wb_span_print(least), *longest = wb_span_print(age);
    g_autoptr(GString) text = g_string_new(NULL);

    if (age == 0)
        return g_strdup(" while there is room for it");
    if (least == WB_FOREVER)
        return g_strdup(", for ever");
    g_string_printf(text, " for %s", span);
    if (least < age)
        g_string_append_printf(text, ", some for %s", age == WB_FOREVER ? "ever" : longest);
    if (has_room)
        g_string_append(text, ", and longer while there is room");
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static void ignore(const char *line, void *data)
{
    /* It is told when it is read to be carried out. */
}

void wb_config_tell_new(const struct wb_session *session)
{
    g_autofree char *path = wb_config_file_path(session->source, session->options->store), *words = NULL;
    struct wb_config config;
    int r = wb_config_file_read(session->store->dir_fd, WB_CONFIG_NAME, path, &config, ignore, NULL);

    if (r == 0 || r == -ENOENT) {
        words = in_words(&config.policy);
        wb_report("%s: a history begins: every state is kept%s, unless vrm, vprune or %s says otherwise",
                  session->source, words, path);
    }
    wb_config_deinit(&config);
}
