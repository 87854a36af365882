module slipway.test/flannel-cni

go 1.24
