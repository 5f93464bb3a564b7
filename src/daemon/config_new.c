/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a history begins with: one line that says what is kept, for how long, and where to say otherwise. */
#include "daemon/config_file.h"

#include "daemon/report.h"
#include "daemon/session.h"
#include "format/format.h"
#include <errno.h>
#include <glib.h>

static char *in_words(const struct wb_policy *policy)
{
    bool has_room = wb_policy_has_room(policy);
    int64_t age = has_room ? wb_policy_hold(policy) : wb_policy_reach(policy);
    g_autofree char *span = wb_span_print(age);

    if (age == WB_FOREVER)
        return g_strdup("every state is kept, for ever");
    if (age == 0)
        return g_strdup("every state is kept while there is room for it");
    return g_strdup_printf("every state is kept for %s%s", span, has_room ? ", and longer while there is room" : "");
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
        wb_report("%s: a history begins: %s, unless vrm, vprune or %s says otherwise", session->source, words, path);
    }
    wb_config_deinit(&config);
}
