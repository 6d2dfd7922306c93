import subprocess, time, os, signal, sys
def test_probe(start_gateway):
    for i in range(6):
        gw = start_gateway()
        r = gw.hold("x"); gw.release("x", r.token)
        print("served by", r.worker)
        gw._note_processes()
        gw.process.send_signal(signal.SIGQUIT)
        time.sleep(1.0)
        left = [p for p in gw.left() if p != gw.process.pid]
        if left:
            out = subprocess.run(["gdb","-p",str(left[0]),"-batch","-ex","set pagination off","-ex","bt 12","-ex","print ngx_event_timer_rbtree","-ex","print *ngx_event_timer_rbtree.root", "-ex", "p ((ngx_event_t*)((char*)ngx_event_timer_rbtree.root-(long)&((ngx_event_t*)0)->timer))->handler", "-ex","p *((ngx_event_t*)((char*)ngx_event_timer_rbtree.root->left-(long)&((ngx_event_t*)0)->timer))"],capture_output=True,text=True).stdout
            print(left, out[-5000:])
            t=time.time()
            while gw.left() and time.time()-t<3: time.sleep(0.1)
            print("left after", time.time()-t)
            gw.kill()
            break
        gw.process.wait(); gw.process=None
