package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// How long kubeadm's leaf certificates live.
const leafLifetime = 365 * 24 * time.Hour

// authority is a certificate authority that the bootstrap data carried.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// readAuthority takes <name>.crt and <name>.key out of the PKI and checks that they are one pair.
func readAuthority(pki map[string]string, name string) (authority, error) {
	certPath, keyPath := name+".crt", name+".key"
	certBlock, _ := pem.Decode([]byte(pki[certPath]))
	if certBlock == nil {
		return authority{}, invalid("/etc/kubernetes/pki/%s is missing or no PEM", certPath)
	}
	certificate, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return authority{}, invalid("/etc/kubernetes/pki/%s is no certificate: %v", certPath, err)
	}
	if !certificate.IsCA {
		return authority{}, invalid("/etc/kubernetes/pki/%s is not a certificate authority", certPath)
	}
	keyBlock, _ := pem.Decode([]byte(pki[keyPath]))
	if keyBlock == nil {
		return authority{}, invalid("/etc/kubernetes/pki/%s is missing or no PEM", keyPath)
	}
	key, err := parseKey(keyBlock.Bytes)
	if err != nil {
		return authority{}, invalid("/etc/kubernetes/pki/%s is no private key: %v", keyPath, err)
	}
	public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return authority{}, invalid("/etc/kubernetes/pki/%s does not belong to %s", keyPath, certPath)
	}
	return authority{certificate, key}, nil
}

func parseKey(der []byte) (crypto.Signer, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return signer, nil
}

// pool trusts this authority alone.
func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// hash is kubeadm's discovery hash of the authority's public key.
func (a authority) hash() string {
	sum := sha256.Sum256(a.certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// same reports whether both are one authority.
func (a authority) same(other authority) bool {
	return a.certificate != nil && other.certificate != nil && a.certificate.Equal(other.certificate)
}

// serve issues a serving certificate. The common name matters: the kubeadm
// control plane looks for "kube-apiserver" when it asks for the expiry.
func (a authority) serve(commonName string, names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    a.certificate.NotBefore,
		NotAfter:     time.Now().Add(leafLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func base64Text(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
