/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reports, once for a new history, how long versions are kept and which file changes that. */
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
        return g_strdup(" while space permits");
    if (least == WB_FOREVER)
        return g_strdup(" forever");
    g_string_printf(text, " for %s%s", has_room ? "at least " : "", span);
    if (least < age)
        g_string_append_printf(text, ", some %s%s", age == WB_FOREVER ? "" : "for ",
                               age == WB_FOREVER ? "forever" : longest);
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static void ignore(const char *line, void *data)
{
    /* The schedule reports mistakes when it reads the file. */
}

void wb_config_report_new(const struct wb_session *session)
{
    g_autofree char *path = wb_config_file_path(session->source, session->options->store), *words = NULL;
    struct wb_config config;
    int r = wb_config_file_read(session->store->dir_fd, WB_CONFIG_NAME, path, &config, ignore, NULL);

    if (r == 0 || r == -ENOENT) {
        words = in_words(&config.policy);
        wb_log_msg("%s: created a new history; versions are kept%s (change this in %s)", session->source, words, path);
    }
    wb_config_deinit(&config);
}
