
/*
 * The mailbox: the only way from foreign threads to the event loop.
 *
 * Plain C, pthread and eventfd; no nginx, no ZooKeeper.  A message is embedded
 * in the structure that the message is about, so a post cannot fail for lack
 * of memory.  The loop watches the descriptor (level-triggered) and calls
 * zkl_mailbox_take() when the descriptor is readable.  Messages are delivered
 * in the order of the posts.
 */


#ifndef _ZKL_MAILBOX_H_INCLUDED_
#define _ZKL_MAILBOX_H_INCLUDED_


#include <pthread.h>
#include <stdint.h>


typedef struct zkl_message_s  zkl_message_t;

/* runs on the event loop; the receiver may reuse the message */
typedef void (*zkl_message_pt)(zkl_message_t *message, void *data);

struct zkl_message_s {
    zkl_message_t       *next;
    zkl_message_pt       deliver;
};


typedef struct {
    pthread_mutex_t      mutex;
    zkl_message_t       *first;     /* under mutex */
    zkl_message_t      **last;      /* under mutex */
    int                  fd;        /* eventfd; written when first was NULL */
} zkl_mailbox_t;


/*
 * fd is an eventfd, or -1 to make a new eventfd.  Returns 0, or an errno, and
 * then leaves no resource behind.
 */
int zkl_mailbox_init(zkl_mailbox_t *mailbox, int fd);

/* Frees the mutex and closes the descriptor; the mailbox must be empty. */
void zkl_mailbox_done(zkl_mailbox_t *mailbox);

/* Any thread: posts a message with deliver set, and wakes the loop. */
void zkl_mailbox_post_foreign(zkl_mailbox_t *mailbox, zkl_message_t *message);

/*
 * Event loop: resets the descriptor, takes all messages, and delivers the
 * messages in order.  A message that is posted meanwhile is left to the next
 * call.  Returns the number of messages delivered.
 */
unsigned zkl_mailbox_take(zkl_mailbox_t *mailbox, void *data);

/*
 * The same out of turn: leaves the descriptor as it is, because other processes
 * may have written to the descriptor, too, and the loop has to hear of that.
 */
unsigned zkl_mailbox_drain(zkl_mailbox_t *mailbox, void *data);


#endif /* _ZKL_MAILBOX_H_INCLUDED_ */
