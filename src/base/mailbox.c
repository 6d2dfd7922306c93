
/*
 * The mailbox: a list under a mutex, and an eventfd.  A thread holds the mutex
 * for a few instructions only, and calls no function meanwhile.
 */


#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mailbox.h"


int
zkl_mailbox_init(zkl_mailbox_t *mailbox, int fd)
{
    int  err;

    mailbox->first = NULL;
    mailbox->last = &mailbox->first;
    mailbox->fd = fd;

    err = pthread_mutex_init(&mailbox->mutex, NULL);
    if (err != 0) {
        return err;
    }

    if (fd != -1) {
        return 0;
    }

    mailbox->fd = eventfd(0, EFD_NONBLOCK|EFD_CLOEXEC);

    if (mailbox->fd == -1) {
        err = errno;
        (void) pthread_mutex_destroy(&mailbox->mutex);
        return err;
    }

    return 0;
}


void
zkl_mailbox_done(zkl_mailbox_t *mailbox)
{
    if (mailbox->fd != -1) {
        (void) close(mailbox->fd);
        mailbox->fd = -1;
    }

    (void) pthread_mutex_destroy(&mailbox->mutex);
}


void
zkl_mailbox_post_foreign(zkl_mailbox_t *mailbox, zkl_message_t *message)
{
    int       empty;
    ssize_t   n;
    uint64_t  one;

    message->next = NULL;

    (void) pthread_mutex_lock(&mailbox->mutex);

    empty = (mailbox->first == NULL);

    *mailbox->last = message;
    mailbox->last = &message->next;

    (void) pthread_mutex_unlock(&mailbox->mutex);

    if (!empty) {
        return;
    }

    one = 1;

    do {
        n = write(mailbox->fd, &one, sizeof(uint64_t));

        /* EAGAIN: the counter is full, so the loop is awake anyway */

    } while (n == -1 && errno == EINTR);
}


unsigned
zkl_mailbox_take(zkl_mailbox_t *mailbox, void *data)
{
    ssize_t   n;
    uint64_t  count;

    do {
        n = read(mailbox->fd, &count, sizeof(uint64_t));

        /* EAGAIN: no message was posted since the last call */

    } while (n == -1 && errno == EINTR);

    return zkl_mailbox_drain(mailbox, data);
}


unsigned
zkl_mailbox_drain(zkl_mailbox_t *mailbox, void *data)
{
    unsigned        taken;
    zkl_message_t  *message, *next;

    (void) pthread_mutex_lock(&mailbox->mutex);

    message = mailbox->first;

    mailbox->first = NULL;
    mailbox->last = &mailbox->first;

    (void) pthread_mutex_unlock(&mailbox->mutex);

    for (taken = 0; message != NULL; taken++) {
        next = message->next;
        message->deliver(message, data);
        message = next;
    }

    return taken;
}
